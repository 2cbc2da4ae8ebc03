"""First come, first served: the oldest joins first, the newest gives way first."""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from typing import Any

import attrs

from plancha.contracts import Site
from plancha.options import structure
from plancha.sequence import Sequence


@attrs.frozen
class FcfsOptions:
    """First come, first served, whoever it is. It has no options."""


def fcfs(options: Mapping[str, Any], site: Site) -> "Fcfs":
    """The entry point. Raises `OptionsError` for any option."""
    structure(options, FcfsOptions, "scheduler")
    return Fcfs()


class Fcfs:
    """One line, by order of acceptance; a preempted sequence takes its old place in it."""

    def __init__(self) -> None:
        self._line: list[Sequence] = []

    def add(self, sequence: Sequence, now: float) -> None:
        """Newcomers go to the end, the preempted before everyone who came after them."""
        insort(self._line, sequence, key=_arrival)

    def waiting(self, now: float) -> Iterator[Sequence]:
        """The line, oldest first."""
        return iter(self._line)

    def joined(self, sequence: Sequence, cached: int) -> None:
        """It leaves the line."""
        self._leave(sequence)

    def victims(self, running: Seq[Sequence], for_: Sequence) -> Iterator[Sequence]:
        """Whoever came after `for_`, newest first."""
        later = [sequence for sequence in running if sequence.arrival > for_.arrival]
        return iter(sorted(later, key=_arrival, reverse=True))

    def charge(self, output: Mapping[str, int]) -> None:
        """Nobody pays here: order of arrival is all that counts."""

    def remove(self, sequence: Sequence) -> None:
        """It leaves the line, if it still stands in it."""
        self._leave(sequence)

    def why(self, sequence: Sequence) -> str | None:
        """Others came before it."""
        return None if self._line and self._line[0] is sequence else "order"

    def _leave(self, sequence: Sequence) -> None:
        place = bisect_left(self._line, sequence.arrival, key=_arrival)
        if place < len(self._line) and self._line[place] is sequence:
            del self._line[place]


def _arrival(sequence: Sequence) -> int:
    return sequence.arrival
