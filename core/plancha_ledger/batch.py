"""What one write comes to: the rows that are new, in order, numbered and signed."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from plancha.ledger import Closed, Opened
from plancha_ledger.entry import MAC_BYTES, Attempt, Entry, microseconds, sign


@attrs.frozen
class Head:
    """The last row of a writer's chain."""

    number: int
    mac: bytes


IDENTITY = ("request", "attempt", "label", "tenant", "model", "opened_us")
"""What a closing says again of its opening."""

START = Head(0, bytes(MAC_BYTES))
"""Before a chain's first row."""


@attrs.define
class Pen:
    """Adds rows to the end of one writer's chain."""

    writer: str
    epoch: int
    key: bytes = attrs.field(repr=False)
    head: Head

    def add(self, fields: dict[str, Any]) -> Entry:
        """A row of these fields of an entry, with its number, writer, epoch and MAC."""
        number = self.head.number + 1
        own = {"writer": self.writer, "number": number, "epoch": self.epoch}
        unsigned = Entry(**{**fields, **own})
        self.head = Head(number, sign(self.key, self.head.mac, unsigned))
        return attrs.evolve(unsigned, mac=self.head.mac)


def keys_of(opened: Iterable[Opened], closed: Iterable[Closed]) -> list[Attempt]:
    """The attempts of which a write must know what is written already."""
    found = dict.fromkeys((each.request, each.attempt) for each in opened)
    found |= dict.fromkeys((each.counts.request, each.counts.attempt) for each in closed)
    return list(found)


def new_entries(
    pen: Pen, known: Iterable[Entry], opened: Sequence[Opened], closed: Sequence[Closed]
) -> list[Entry]:
    """The rows that `opened` and `closed` add to `known`, all that is written of their attempts.

    Raises ValueError for the end of a request that this writer never opened: nobody knows whose.
    """
    openings: dict[Attempt, Entry] = {}
    ended: set[Attempt] = set()
    for entry in known:
        if entry.kind == "open":
            openings[entry.key] = entry
        else:
            ended.add(entry.key)
    added: list[Entry] = []
    for each in opened:
        if (each.request, each.attempt) not in openings:
            added.append(pen.add(_opening(each)))
            openings[added[-1].key] = added[-1]
    for end in closed:
        key = (end.counts.request, end.counts.attempt)
        if key not in ended:
            added.append(pen.add(_closing(end, _own(openings, key, pen.writer))))
            ended.add(key)
    return added


def _own(openings: Mapping[Attempt, Entry], key: Attempt, writer: str) -> Entry:
    opening = openings.get(key)
    if opening is None or opening.writer != writer:
        raise ValueError(f"request {key[0]}, attempt {key[1]}: {writer} never opened it")
    return opening


def _opening(opened: Opened) -> dict[str, Any]:
    return {
        "kind": "open",
        "request": opened.request,
        "attempt": opened.attempt,
        "label": opened.label,
        "tenant": opened.tenant,
        "model": opened.model,
        "opened_us": microseconds(opened.opened_s),
    }


def _closing(closed: Closed, opening: Entry) -> dict[str, Any]:
    counts = closed.counts
    return {
        "kind": "close",
        **{name: getattr(opening, name) for name in IDENTITY},
        "input_tokens": counts.input_tokens,
        "cached_tokens": counts.cached_tokens,
        "output_tokens": counts.output_tokens,
        "outcome": closed.outcome,
        "closed_us": microseconds(closed.closed_s),
        "superseded": closed.superseded,
    }
