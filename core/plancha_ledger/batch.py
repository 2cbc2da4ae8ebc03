"""What one write comes to: the rows that are new, in order, numbered and signed."""

from collections.abc import Iterable, Mapping, Sequence

import attrs

from plancha.ledger import Closed, Counts, Opened
from plancha_ledger.entry import MAC_BYTES, Attempt, Entry, microseconds, sign


@attrs.frozen
class Head:
    """The last row of a writer's chain."""

    number: int
    mac: bytes


START = Head(0, bytes(MAC_BYTES))
"""Before a chain's first row."""


@attrs.define
class Pen:
    """Adds rows to the end of one writer's chain."""

    writer: str
    epoch: int
    key: bytes = attrs.field(repr=False)
    head: Head

    def add(self, entry: Entry) -> Entry:
        """The same with its number, writer, epoch and MAC."""
        entry = attrs.evolve(
            entry, writer=self.writer, epoch=self.epoch, number=self.head.number + 1
        )
        mac = sign(self.key, self.head.mac, entry)
        self.head = Head(entry.number, mac)
        return attrs.evolve(entry, mac=mac)


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


def _opening(opened: Opened) -> Entry:
    return Entry(
        writer="",
        number=0,
        epoch=0,
        kind="open",
        request=opened.request,
        attempt=opened.attempt,
        label=opened.label,
        tenant=opened.tenant,
        model=opened.model,
        opened_us=microseconds(opened.opened_s),
    )


def _closing(closed: Closed, opening: Entry) -> Entry:
    counts: Counts = closed.counts
    return attrs.evolve(
        opening,
        kind="close",
        input_tokens=counts.input_tokens,
        cached_tokens=counts.cached_tokens,
        output_tokens=counts.output_tokens,
        outcome=closed.outcome,
        closed_us=microseconds(closed.closed_s),
        superseded=closed.superseded,
        mac=b"",
    )
