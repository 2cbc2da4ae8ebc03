"""Requests that have not ended: what they cost so far, and what a crash makes of them."""

import hmac
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import orjson

from plancha.ledger import Closed, Counts
from plancha.record import Record
from plancha_ledger.entry import Attempt, Entry, canonical, outcome_of
from plancha_ledger.schema import COUNTS

PURPOSE = b"plancha ledger counts so far\n"  # no signature of a row or of an anchor begins so


@attrs.frozen
class Running:
    """A request, as its writer remembers it."""

    opening: Entry
    counts: Counts

    def raised(self, counts: Counts) -> "Running":
        """None of the counts ever goes back."""
        most = {name: max(getattr(self.counts, name), getattr(counts, name)) for name in COUNTS}
        return Running(self.opening, attrs.evolve(self.counts, **most))

    def row(self, key: bytes) -> tuple[object, ...]:
        """As it is stored: whoever finds it later bills by it, so it is signed."""
        counts = self.counts
        numbers = (getattr(counts, name) for name in COUNTS)
        mac = sign_counts(key, self.opening, counts)
        return (counts.request, counts.attempt, self.opening.writer, *numbers, mac)


def running_after(
    before: Mapping[Attempt, Running], writer: str, rows: Sequence[Entry], counts: Iterable[Counts]
) -> dict[Attempt, Running]:
    """What of `writer` runs once these rows are there and these counts are known."""
    after = dict(before)
    for row in rows:
        if row.kind == "open" and row.writer == writer:
            nothing = Counts(request=row.request, attempt=row.attempt, **dict.fromkeys(COUNTS, 0))
            after.setdefault(row.key, Running(row, nothing))
    for each in counts:
        if (running := after.get((each.request, each.attempt))) is not None:
            after[running.opening.key] = running.raised(each)
    for row in rows:
        if row.kind == "close":
            after.pop(row.key, None)
    return after


def sign_counts(key: bytes, opening: Entry, counts: Counts) -> bytes:
    """HMAC-SHA256 over the counts and all of the opening: they are good for no other request."""
    numbers = orjson.dumps([getattr(counts, name) for name in COUNTS])
    return hmac.digest(key, PURPOSE + canonical(opening) + numbers, "sha256")


def counts_of(found: Sequence[Any]) -> Counts:
    """A row of `ledger_running`: request, attempt, the three counts and their MAC.

    Raises ValueError for one that nobody can have written.
    """
    request, attempt, *numbers, _ = found
    if any(type(number) is not int for number in (attempt, *numbers)):
        raise ValueError(_edited(request))
    return Counts(request=request, attempt=attempt, **dict(zip(COUNTS, numbers, strict=True)))


def vouched(key: bytes, found: Sequence[Any], known: Iterable[Entry]) -> Counts:
    """The same, raising ValueError also unless it was signed together with the opening in `known`.

    Recovery puts its own signature below these counts, and below whose they are.
    """
    counts = counts_of(found)
    for opening in known:
        if opening.kind == "open" and opening.key == (counts.request, counts.attempt):
            if found[-1] != sign_counts(key, opening, counts):
                raise ValueError(_edited(counts.request))
    return counts


def _edited(request: object) -> str:
    return (
        f"request {request!a}: its counts so far were edited, or its opening was; to go on without "
        "its bill, delete it from ledger_running, and `plancha ledger verify` will name it"
    )


def abandoned(counts: Counts, now: float) -> Closed:
    """Its writer is gone, and `counts` is all that it has left: never more than was computed."""
    return Closed(counts=counts, outcome="failed", closed_s=now)


def record_of(entries: Iterable[Entry], running: Counts | None) -> Record | None:
    """Of a request's latest attempt; `running` are its counts so far, if it has not ended.

    An attempt that is superseded costs nothing: until the next is opened, the request waits.
    """
    latest = max(entries, key=lambda entry: (entry.attempt, entry.kind == "close"), default=None)
    if latest is None:
        return None
    record = Record(
        id=latest.request,
        label=latest.label,
        tenant=latest.tenant,
        model=latest.model,
        created=latest.opened_us // 1_000_000,
        input_tokens=0,
    )
    if latest.kind == "close" and not latest.superseded:
        record.input_tokens = latest.input_tokens or 0
        record.cached_tokens = latest.cached_tokens or 0
        record.output_tokens = latest.output_tokens or 0
        record.state, record.outcome = "done", outcome_of(latest)
        if latest.closed_us is not None:
            record.finished = latest.closed_us // 1_000_000
    elif running is not None and running.attempt == latest.attempt:
        record.input_tokens = running.input_tokens
        record.cached_tokens = running.cached_tokens
        record.output_tokens = running.output_tokens
        record.state = "generating" if running.input_tokens else "queued"
    return record
