"""Requests that have not ended: what they cost so far, and what a crash makes of them."""

from collections.abc import Iterable, Sequence
from typing import Any

from plancha.ledger import Closed, Counts
from plancha.record import Record
from plancha_ledger.entry import Entry, outcome_of
from plancha_ledger.schema import COUNTS


def counts_of(found: Sequence[Any]) -> Counts:
    """A row of `ledger_running`: request, attempt and the three counts.

    Raises ValueError for one that nobody can have written: what is in it would be signed.
    """
    request, attempt, *numbers = found
    if any(type(number) is not int for number in (attempt, *numbers)):
        raise ValueError(f"request {request!a}: its counts so far were edited")
    return Counts(request=request, attempt=attempt, **dict(zip(COUNTS, numbers, strict=True)))


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
