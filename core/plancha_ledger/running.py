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
    """A request, as its writer remembers it; `signed` is its opening's part of a signature."""

    opening: Entry
    counts: Counts
    signed: bytes

    def raised(self, counts: Counts) -> "Running":
        """None of the counts ever goes back."""
        before = self.counts
        if not (
            counts.input_tokens >= before.input_tokens
            and counts.cached_tokens >= before.cached_tokens
            and counts.output_tokens >= before.output_tokens
        ):
            most = {name: max(getattr(before, name), getattr(counts, name)) for name in COUNTS}
            counts = attrs.evolve(counts, **most)
        return Running(self.opening, counts, self.signed)

    def row(self, key: bytes) -> tuple[object, ...]:
        """As it is stored: whoever finds it later bills by it, so it is signed."""
        mac = sign_counts(key, self.signed, self.counts)
        counts, writer = self.counts, self.opening.writer
        return counts.request, counts.attempt, writer, *_numbers(counts), mac


Changes = Mapping[Attempt, Running | None]
"""What becomes of requests; None: it has ended."""


def changes_of(
    running: Mapping[Attempt, Running], writer: str, rows: Sequence[Entry], counts: Iterable[Counts]
) -> Changes:
    """What these rows and counts make of what `writer` remembers to run."""
    changes: dict[Attempt, Running | None] = {}
    for row in rows:
        if row.kind == "open" and row.writer == writer and row.key not in running:
            nothing = Counts(request=row.request, attempt=row.attempt, **dict.fromkeys(COUNTS, 0))
            changes[row.key] = Running(row, nothing, _signed(row))
    for each in counts:
        key = each.request, each.attempt
        before = changes.get(key) or running.get(key)
        if before is not None:
            changes[key] = before.raised(each)
    changes.update((row.key, None) for row in rows if row.kind == "close")
    return changes


def apply(changes: Changes, running: dict[Attempt, Running]) -> None:
    """They are durable."""
    for key, each in changes.items():
        if each is None:
            running.pop(key, None)
        else:
            running[key] = each


def sign_counts(key: bytes, signed: bytes, counts: Counts) -> bytes:
    """HMAC-SHA256 over the counts and all of the opening: they are good for no other request."""
    return hmac.digest(key, signed + orjson.dumps(_numbers(counts)), "sha256")


def _signed(opening: Entry) -> bytes:
    return PURPOSE + canonical(opening)


def _numbers(counts: Counts) -> tuple[int, int, int]:
    return counts.input_tokens, counts.cached_tokens, counts.output_tokens


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
            if found[-1] != sign_counts(key, _signed(opening), counts):
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
