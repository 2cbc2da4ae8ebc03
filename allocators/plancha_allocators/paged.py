"""KV blocks handed out one by one, as tokens need them (Kwon et al., PagedAttention, SOSP 2023)."""

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from plancha.contracts import KvStats, Site
from plancha.options import structure
from plancha.sequence import Sequence


@attrs.frozen
class PagedOptions:
    """`paged` has no options of its own."""


def paged(options: Mapping[str, Any], site: Site) -> "Paged":
    """The entry point. Raises `OptionsError` for any option."""
    structure(options, PagedOptions, "allocator")
    return Paged(site.loaded().blocks, site.block_size)


class Paged:
    """A free list. Nothing is shared, so a block has one holder or none."""

    def __init__(self, blocks: int, block_size: int) -> None:
        self._block_size = block_size
        self._free = list(range(blocks))[::-1]
        self._held = bytearray(blocks)

    def need(self, tokens: int, sequence: Sequence | None = None) -> int:
        """Blocks still missing until `sequence` (None: a new one) holds `tokens` in all."""
        held = 0 if sequence is None else len(sequence.blocks)
        return max(0, -(-tokens // self._block_size) - held)

    def grow(self, sequence: Sequence, tokens: int) -> bool:
        """Extend its table to hold `tokens` in all; False, nothing changed, if blocks are short."""
        need = self.need(tokens, sequence)
        if need > len(self._free):
            return False
        for _ in range(need):
            block = self._free.pop()
            self._held[block] = 1
            sequence.blocks.append(block)
        return True

    def freeable(self, sequences: Iterable[Sequence]) -> int:
        """Blocks that would come free if all of these were released together."""
        return sum(len(sequence.blocks) for sequence in sequences)

    def release(self, sequence: Sequence) -> None:
        """Give back all its blocks. Raises `RuntimeError` for a block that nobody holds."""
        for block in reversed(sequence.blocks):
            if not self._held[block]:
                raise RuntimeError(f"block {block} of stream {sequence.stream} is already free")
            self._held[block] = 0
            self._free.append(block)
        sequence.blocks.clear()

    def stats(self) -> KvStats:
        """Counters, O(1)."""
        total, free = len(self._held), len(self._free)
        return KvStats(total=total, free=free, used=total - free)
