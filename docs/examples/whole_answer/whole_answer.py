"""Room for the whole answer before it begins: whoever runs never has to give way for memory."""

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from plancha.contracts import Eviction, KvStats, Site
from plancha.options import structure
from plancha.plans import NO_MOVES, Moves
from plancha.sequence import Sequence

CONTRACT = 1


@attrs.frozen
class Options:
    """There are none; `structure` refuses whatever the table [allocator] holds."""


def whole_answer(options: Mapping[str, Any], site: Site) -> "WholeAnswer":
    """The entry point."""
    structure(options, Options, "allocator")
    return WholeAnswer(site.loaded().blocks, site.block_size)


class WholeAnswer:
    """A free list. Nothing is shared, nothing is cached, nothing is copied."""

    def __init__(self, blocks: int, block_size: int) -> None:
        self._total = blocks
        self._block_size = block_size
        self._free = list(range(blocks))
        self._held: set[int] = set()

    def need(self, tokens: int, sequence: Sequence | None = None) -> int:
        """Who begins needs all that it may ever need; who has begun, nothing more."""
        if sequence is None:
            return self._blocks_for(tokens)
        return self._blocks_for(max(tokens, sequence.max_length)) - len(sequence.blocks)

    def reuse(self, sequence: Sequence) -> int:
        """No block is ever found again."""
        return 0

    def grow(self, sequence: Sequence, tokens: int) -> bool:
        """All of it, or nothing."""
        need = self.need(tokens, sequence)
        if need > len(self._free):
            return False
        taken = [self._free.pop() for _ in range(need)]
        self._held.update(taken)
        sequence.blocks.extend(taken)
        return True

    def commit(self, sequence: Sequence, computed: int) -> None:
        """Nobody else will look for it."""

    def fork(self, parent: Sequence, child: Sequence) -> bool:
        """It joins on its own, with blocks of its own."""
        return False

    def freeable(self, sequences: Iterable[Sequence]) -> int:
        """Every block has one holder, so all of them."""
        return sum(len(sequence.blocks) for sequence in sequences)

    def evict(self, sequence: Sequence, *, computed: int, swap: bool) -> Eviction:
        """A better tier wants its place: it is computed again later."""
        self.release(sequence)
        return Eviction.RECOMPUTE

    def restore(self, sequence: Sequence) -> bool:
        """Nothing is ever swapped out."""
        return False

    def release(self, sequence: Sequence) -> None:
        """Raises `RuntimeError` for a block that nobody holds: a bug that must not go unseen."""
        for block in sequence.blocks:
            if block not in self._held:
                raise RuntimeError(f"block {block} has no holder to give it back")
            self._held.remove(block)
            self._free.append(block)
        sequence.blocks.clear()

    def forget(self) -> None:
        """Nothing was cached."""

    def take_moves(self) -> Moves:
        """Nothing ever moves."""
        return NO_MOVES

    def stats(self) -> KvStats:
        """Free and used are all there is."""
        return KvStats(total=self._total, free=len(self._free), used=len(self._held))

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self._block_size)
