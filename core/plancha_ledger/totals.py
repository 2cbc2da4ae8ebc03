"""What is to be billed: every request once, for what was really computed."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Literal

import attrs

from plancha_ledger.entry import Entry, outcome_of

Grouping = Literal["tenant", "model", "outcome", "day", "month"]


@attrs.define
class Total:
    """Of one group. `cached_tokens` are a part of `input_tokens`."""

    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    completed: int = 0
    cancelled: int = 0
    failed: int = 0
    stalled: int = 0

    def add(self, entry: Entry) -> None:
        """One more closed request."""
        self.requests += 1
        self.input_tokens += entry.input_tokens or 0
        self.cached_tokens += entry.cached_tokens or 0
        self.output_tokens += entry.output_tokens or 0
        outcome = outcome_of(entry)
        setattr(self, outcome, getattr(self, outcome) + 1)


@attrs.frozen(kw_only=True)
class Selection:
    """Which closings; times in microseconds since 1970, `until_us` not included."""

    tenant: str | None = None
    since_us: int | None = None
    until_us: int | None = None

    def __call__(self, entry: Entry) -> bool:
        closed_us = entry.closed_us
        return (
            closed_us is not None
            and (self.tenant is None or entry.tenant == self.tenant)
            and (self.since_us is None or self.since_us <= closed_us)
            and (self.until_us is None or closed_us < self.until_us)
        )


EVERYTHING = Selection()


def billed(entries: Iterable[Entry], selection: Selection = EVERYTHING) -> Iterator[Entry]:
    """The closings that cost something: whatever the outcome, but no superseded attempts."""
    return (entry for entry in entries if selection(entry) and not entry.superseded)


def totals(entries: Iterable[Entry], by: Sequence[Grouping]) -> dict[tuple[str, ...], Total]:
    """Totals of what `billed` gives, in order of their groups; days are those of UTC."""
    found: dict[tuple[str, ...], Total] = {}
    for entry in entries:
        group = tuple(_group(entry, name) for name in by)
        found.setdefault(group, Total()).add(entry)
    return dict(sorted(found.items()))


def iso_time(us: int) -> str:
    """A time as ISO 8601 has it, in UTC and to the microsecond."""
    seconds, rest = divmod(us, 1_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:06d}Z"


def _group(entry: Entry, name: Grouping) -> str:
    if name in ("day", "month"):
        return iso_time(entry.closed_us or 0)[: len("2026-01-01" if name == "day" else "2026-01")]
    return str(getattr(entry, name))
