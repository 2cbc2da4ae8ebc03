"""The shortest prompt first; whoever has waited for `patience_s` goes before all of them."""

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from typing import Any

import attrs

from plancha.contracts import Site
from plancha.options import at_least, structure
from plancha.sequence import Sequence

CONTRACT = 1


@attrs.frozen(kw_only=True)
class Options:
    """The table [scheduler], without its key `plugin`."""

    patience_s: float = attrs.field(default=5.0, validator=at_least(0))


def shortest_first(options: Mapping[str, Any], site: Site) -> "ShortestFirst":
    """The entry point."""
    return ShortestFirst(structure(options, Options, "scheduler").patience_s)


class ShortestFirst:
    """Everyone who waits, in a set; sorted when asked."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._waiting: set[Sequence] = set()

    def add(self, sequence: Sequence, now: float) -> None:
        """Newcomers and the preempted alike."""
        self._waiting.add(sequence)

    def waiting(self, now: float) -> Iterator[Sequence]:
        """First those out of patience, oldest first; then by length."""

        def place(sequence: Sequence) -> tuple[int, int]:
            if now - sequence.arrived_s >= self._patience_s:
                return 0, sequence.arrival
            return sequence.prompt_tokens, sequence.arrival

        return iter(sorted(self._waiting, key=place))

    def joined(self, sequence: Sequence, cached: int) -> None:
        """It computes from now on."""
        self._waiting.discard(sequence)

    def victims(self, running: Seq[Sequence], for_: Sequence) -> Iterator[Sequence]:
        """The newest gives way first; never somebody who came before `for_`."""
        later = (sequence for sequence in running if sequence.arrival > for_.arrival)
        return iter(sorted(later, key=lambda sequence: -sequence.arrival))

    def charge(self, output: Mapping[str, int]) -> None:
        """No tenant is favoured here."""

    def remove(self, sequence: Sequence) -> None:
        """Finished or cancelled."""
        self._waiting.discard(sequence)
