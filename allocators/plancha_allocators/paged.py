"""KV blocks handed out one by one, as tokens need them (Kwon et al., PagedAttention, SOSP 2023).

Full blocks are kept findable by content after their holder is gone, until their memory is needed:
the prefix cache.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import attrs
import numpy as np

from plancha.contracts import Eviction, KvStats, Site
from plancha.messages import Int32s
from plancha.options import structure
from plancha.plans import NO_MOVES, Moves
from plancha.sequence import Sequence
from plancha_allocators.blocks import Blocks
from plancha_allocators.prefix_hashes import block_hashes


@attrs.frozen
class PagedOptions:
    """Blocks are handed out as tokens need them; who must give way is computed again later."""

    prefix_cache: bool = True
    """Whether prompts of one tenant that begin alike share their blocks."""


def paged(options: Mapping[str, Any], site: Site) -> "Paged":
    """The entry point. Raises `OptionsError`."""
    mine = structure(options, PagedOptions, "allocator")
    return Paged(site.loaded().blocks, site.block_size, prefix_cache=mine.prefix_cache)


class Paged:
    """A free list, reference counts and a prefix cache; an evicted sequence is recomputed."""

    def __init__(self, blocks: int, block_size: int, *, prefix_cache: bool = True) -> None:
        self._block_size = block_size
        self._blocks = Blocks(blocks)
        self._prefix_cache = prefix_cache
        self._copies: list[tuple[int, int]] = []

    def need(self, tokens: int, sequence: Sequence | None = None) -> int:
        """Blocks still missing until `sequence` (None: a new one) holds `tokens` in all."""
        held = 0 if sequence is None else len(sequence.blocks)
        return max(0, -(-tokens // self._block_size) - held)

    def reuse(self, sequence: Sequence) -> int:
        """Leading tokens whose blocks are cached, now shared by it; never all of its tokens."""
        if not self._prefix_cache:
            return 0
        hashes = block_hashes(sequence, sequence.length // self._block_size, self._block_size)
        for content in islice(hashes, (sequence.length - 1) // self._block_size):
            block = self._blocks.find(content)
            if block is None:
                break
            self._blocks.share(block)
            sequence.blocks.append(block)
        sequence.committed_blocks = len(sequence.blocks)
        return len(sequence.blocks) * self._block_size

    def grow(self, sequence: Sequence, tokens: int) -> bool:
        """Extend its table to hold `tokens` in all; False, nothing changed, if blocks are short."""
        need = self.need(tokens, sequence)
        if need > self._blocks.free + self._blocks.cached:
            return False
        if need:
            sequence.blocks.extend(self._blocks.take(need))
        return True

    def commit(self, sequence: Sequence, computed: int) -> None:
        """Its first `computed` tokens are in the pool: full blocks can be found by others now."""
        if not self._prefix_cache:
            return
        first, full = sequence.committed_blocks, computed // self._block_size
        hashes = block_hashes(sequence, full, self._block_size)
        self._blocks.name(sequence.blocks[first:full], hashes[first:full])
        sequence.committed_blocks = full

    def fork(self, parent: Sequence, child: Sequence) -> bool:
        """Share the blocks before the one that holds the prompt's last token, copy that one."""
        shared = (child.prompt_tokens - 1) // self._block_size
        if self._blocks.free + self._blocks.cached == 0:
            return False
        (own,) = self._blocks.take(1)
        for block in parent.blocks[:shared]:
            self._blocks.share(block)
            child.blocks.append(block)
        child.blocks.append(own)
        self._copies.append((parent.blocks[shared], own))
        return True

    def freeable(self, sequences: Iterable[Sequence]) -> int:
        """Blocks that would come free if all of these were evicted together."""
        return self._blocks.last_holders(sequence.blocks for sequence in sequences)

    def evict(self, sequence: Sequence, *, computed: int, swap: bool) -> Eviction:
        """Take all its blocks; there is nowhere to keep what they hold."""
        self.release(sequence)
        return Eviction.RECOMPUTE

    def restore(self, sequence: Sequence) -> bool:
        """Nothing is ever swapped out."""
        return False

    def release(self, sequence: Sequence) -> None:
        """Give back all its blocks. Raises `RuntimeError` for a block that nobody holds.

        The last goes first, so that a cached prompt loses its end before its beginning.
        """
        for block in reversed(sequence.blocks):
            self._blocks.drop(block)
        sequence.blocks.clear()
        sequence.committed_blocks = 0

    def forget(self) -> None:
        """The pool was made anew: nothing cached is there any more."""
        self._blocks.forget()
        self._copies.clear()

    def take_moves(self) -> Moves:
        """The forks' copies."""
        if not self._copies:
            return NO_MOVES
        copied_from, copied_to = columns(self._copies)
        self._copies.clear()
        return attrs.evolve(NO_MOVES, copied_from=copied_from, copied_to=copied_to)

    def cached_blocks(self) -> list[int]:
        """Those that hold a prefix and have no holder."""
        return self._blocks.cached_blocks()

    def stats(self) -> KvStats:
        """Counters, O(1)."""
        blocks = self._blocks
        return KvStats(blocks.total, blocks.free, blocks.used, blocks.cached)


def columns(pairs: list[tuple[int, int]]) -> tuple[Int32s, Int32s]:
    """Pairs as two int32 columns."""
    array = np.array(pairs, np.int32).reshape(-1, 2)
    return array[:, 0], array[:, 1]
