"""One row of the ledger, and the bytes of it that are signed."""

import hmac
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Literal, cast

import attrs
import orjson

from plancha.record import Outcome

Kind = Literal["open", "close"]
Attempt = tuple[str, int]
"""A request's id, and which attempt at it."""

MAC_BYTES = 32
YEAR_10000_US = 253_402_300_800_000_000
OUTCOMES = frozenset({"completed", "cancelled", "failed", "stalled"})


@attrs.frozen(kw_only=True)
class Entry:
    """A row. One of kind `close` says again whose request it was: it is a bill by itself.

    Rows of one `writer` are numbered from 1 without gaps. Times are wall clock, in microseconds
    since 1970; they order nothing. What is not known yet at the opening is None there.
    """

    writer: str
    number: int
    epoch: int  # which holder of the writer's lock wrote it
    kind: Kind
    request: str
    attempt: int
    label: str | None
    tenant: str
    model: str
    opened_us: int
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    outcome: Outcome | None = None
    closed_us: int | None = None
    superseded: bool | None = None
    mac: bytes = b""  # signs all of the above and the row before

    @property
    def key(self) -> Attempt:
        """What it is about."""
        return self.request, self.attempt


SIGNED = tuple(field.name for field in attrs.fields(Entry) if field.name != "mac")
"""The signed columns, in the order in which they are signed."""

COLUMNS = (*SIGNED, "mac")
_signed: Callable[[Entry], tuple[Any, ...]] = attrgetter(*SIGNED)
_CLOSING = SIGNED[SIGNED.index("input_tokens") :]
_NUMBERS = frozenset({"number", "epoch", "attempt", "opened_us"})


def canonical(entry: Entry) -> bytes:
    """The signed columns as one JSON array (RFC 8259) in UTF-8, without spaces.

    Two entries that differ have different bytes, since JSON can be read back.
    """
    return orjson.dumps(_signed(entry))


def sign(key: bytes, previous: bytes, entry: Entry) -> bytes:
    """HMAC-SHA256 (RFC 2104) over the MAC of the writer's row before and this row's columns."""
    return hmac.digest(key, previous + canonical(entry), "sha256")


def row(entry: Entry) -> tuple[object, ...]:
    """As databases store it; `superseded`, the last signed column, is 0 or 1 there."""
    *values, superseded = _signed(entry)
    return (*values, None if superseded is None else int(superseded), entry.mac)


def entry_of(values: Sequence[object]) -> Entry:
    """The entry in a row of `COLUMNS`. Raises ValueError when a column cannot be what was written.

    Nothing is converted, lest an edit pass for what it was made from.
    """
    found: dict[str, Any] = dict(zip(COLUMNS, values, strict=True))
    kind = found["kind"]
    if kind not in ("open", "close"):
        raise ValueError(f"kind is {kind!a}; it must be open or close")
    for name, value in found.items():
        wanted = _wanted(name, closed=kind == "close")
        if type(value) not in wanted:
            names = " or ".join(each.__name__ for each in wanted)
            raise ValueError(f"{name} is of type {type(value).__name__}; it must be {names}")
    if found["superseded"] not in (None, 0, 1):
        raise ValueError(f"superseded is {found['superseded']}; it must be 0 or 1")
    if kind == "close":
        found["superseded"] = bool(found["superseded"])
        if found["outcome"] not in OUTCOMES:
            raise ValueError(f"outcome is {found['outcome']!a}; there is none such")
    for name in ("opened_us", "closed_us"):
        if not 0 <= (found[name] or 0) < YEAR_10000_US:
            raise ValueError(f"{name} is {found[name]}; no calendar has that time")
    if len(found["mac"]) != MAC_BYTES:
        raise ValueError(f"mac has {len(found['mac'])} bytes; it must have {MAC_BYTES}")
    entry = Entry(**found)
    try:
        canonical(entry)
    except orjson.JSONEncodeError as error:  # no UTF-8, or a number beyond 64 bits
        raise ValueError(f"cannot have been written: {error}") from None
    return entry


def _wanted(name: str, *, closed: bool) -> tuple[type, ...]:
    if name == "mac":
        return (bytes,)
    if name == "label":
        return (str, type(None))
    if name in _CLOSING:
        return (type(None),) if not closed else (str,) if name == "outcome" else (int,)
    return (int,) if name in _NUMBERS else (str,)


def microseconds(seconds: float) -> int:
    """Unix seconds as they are stored."""
    return round(seconds * 1_000_000)


def outcome_of(entry: Entry) -> Outcome:
    """How a closed entry's request ended."""
    return cast("Outcome", entry.outcome)
