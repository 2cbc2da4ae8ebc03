"""A slab of the whole context for every sequence: how it was before paging, to compare with."""

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from plancha.contracts import Eviction, KvStats, Site
from plancha.options import structure
from plancha.plans import NO_MOVES, Moves
from plancha.sequence import Sequence


@attrs.frozen
class ContiguousOptions:
    """A slab of the whole context for every sequence, to compare with. It has no options."""


def contiguous(options: Mapping[str, Any], site: Site) -> "Contiguous":
    """The entry point. Raises `OptionsError`."""
    structure(options, ContiguousOptions, "allocator")
    geometry = site.loaded()
    return Contiguous(geometry.blocks, site.block_size, geometry.context_length)


class Contiguous:
    """Slabs of consecutive blocks, one a sequence. Nothing is shared, nothing is cached."""

    def __init__(self, blocks: int, block_size: int, context_length: int) -> None:
        self._slab = -(-context_length // block_size)
        self._slabs = [
            range(start, start + self._slab)
            for start in range(0, blocks - self._slab + 1, self._slab)
        ]
        self._free = self._slabs[::-1]
        self._held: set[int] = set()  # first blocks

    def need(self, tokens: int, sequence: Sequence | None = None) -> int:
        """A slab, or nothing: who has one can hold a whole context.

        With a pool smaller than a slab nothing fits; the answer is then more than the pool.
        """
        return 0 if sequence is not None and sequence.blocks else self._slab

    def reuse(self, sequence: Sequence) -> int:
        """Nothing is cached."""
        return 0

    def grow(self, sequence: Sequence, tokens: int) -> bool:
        """A slab of its own, the first time."""
        if sequence.blocks:
            return True
        if not self._free:
            return False
        slab = self._free.pop()
        self._held.add(slab.start)
        sequence.blocks.extend(slab)
        return True

    def commit(self, sequence: Sequence, computed: int) -> None:
        """Nobody else will look for it."""

    def fork(self, parent: Sequence, child: Sequence) -> bool:
        """Nothing is shared."""
        return False

    def freeable(self, sequences: Iterable[Sequence]) -> int:
        """Whole slabs."""
        return sum(len(sequence.blocks) for sequence in sequences)

    def evict(self, sequence: Sequence, *, computed: int, swap: bool) -> Eviction:
        """Take its slab; there is nowhere to keep what it holds."""
        self.release(sequence)
        return Eviction.RECOMPUTE

    def restore(self, sequence: Sequence) -> bool:
        """Nothing is ever swapped out."""
        return False

    def release(self, sequence: Sequence) -> None:
        """Give back its slab. Raises `RuntimeError` for a slab that nobody holds."""
        if not sequence.blocks:
            return
        first = sequence.blocks[0]
        if first not in self._held:
            raise RuntimeError(f"block {first} has no holder to give it back")
        self._held.discard(first)
        self._free.append(range(first, first + self._slab))
        sequence.blocks.clear()

    def forget(self) -> None:
        """Nothing was cached."""

    def take_moves(self) -> Moves:
        """Nothing ever moves."""
        return NO_MOVES

    def stats(self) -> KvStats:
        """Only whole slabs can be handed out; blocks left over at the end are never free."""
        used = len(self._held) * self._slab
        free = len(self._free) * self._slab
        return KvStats(total=used + free, free=free, used=used)
