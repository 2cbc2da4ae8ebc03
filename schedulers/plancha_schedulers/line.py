"""A line: sequences that wait, in the order in which they were accepted."""

from bisect import bisect_left, insort
from collections.abc import Iterator

from plancha.sequence import Sequence


class Line:
    """Sorted by `arrival`, however late somebody lines up."""

    def __init__(self) -> None:
        self._sequences: list[Sequence] = []

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._sequences)

    def __contains__(self, sequence: Sequence) -> bool:
        return self._place(sequence) is not None

    @property
    def head(self) -> Sequence:
        """Who was accepted first. Raises `IndexError` when nobody waits."""
        return self._sequences[0]

    def add(self, sequence: Sequence) -> None:
        """It takes the place that its arrival gives it."""
        insort(self._sequences, sequence, key=_arrival)

    def remove(self, sequence: Sequence) -> None:
        """It leaves, if it stands here."""
        place = self._place(sequence)
        if place is not None:
            del self._sequences[place]

    def _place(self, sequence: Sequence) -> int | None:
        place = bisect_left(self._sequences, sequence.arrival, key=_arrival)
        here = place < len(self._sequences) and self._sequences[place] is sequence
        return place if here else None


def _arrival(sequence: Sequence) -> int:
    return sequence.arrival
