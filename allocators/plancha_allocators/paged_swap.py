"""Paged, with a host pool: an evicted sequence's blocks can be kept there and come back by copy."""

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from plancha.contracts import Eviction, KvStats, LoadError, Site
from plancha.options import structure
from plancha.plans import Moves
from plancha.sequence import Sequence
from plancha_allocators.paged import Paged, columns


@attrs.frozen
class PagedSwapOptions:
    """As `paged`, and who must give way may wait in host memory: `swap_memory` of the executor."""

    prefix_cache: bool = True
    """As of `paged`."""


def paged_swap(options: Mapping[str, Any], site: Site) -> "PagedSwap":
    """The entry point. Raises `OptionsError`, and `LoadError` when there is nowhere to swap to."""
    mine = structure(options, PagedSwapOptions, "allocator")
    geometry = site.loaded()
    if geometry.host_blocks == 0:
        raise LoadError(
            "the allocator paged-swap has no host memory; "
            'give the executor some, such as swap_memory = "1GiB", or use paged'
        )
    device = Paged(geometry.blocks, site.block_size, prefix_cache=mine.prefix_cache)
    return PagedSwap(device, geometry.host_blocks, site.block_size)


class PagedSwap:
    """`Paged` for everything on the device, and a free list of host blocks beside it.

    A host block is free again only once the plan that reads it has its moves: a plan's copies to
    the host go before those from it.
    """

    def __init__(self, device: Paged, host_blocks: int, block_size: int) -> None:
        self._device = device
        self._block_size = block_size
        self._host_total = host_blocks
        self._host_free = list(range(host_blocks))[::-1]
        self._host_read: list[int] = []  # free once the coming plan has its moves
        self._out: list[tuple[int, int]] = []
        self._in: list[tuple[int, int]] = []
        self.need = device.need
        self.reuse = device.reuse
        self.grow = device.grow
        self.commit = device.commit
        self.fork = device.fork
        self.cached_blocks = device.cached_blocks

    def freeable(self, sequences: Iterable[Sequence]) -> int:
        """Blocks that would come free if all of these were evicted together."""
        return self._device.freeable(sequences)

    def evict(self, sequence: Sequence, *, computed: int, swap: bool) -> Eviction:
        """Copy what is computed to the host, if it has room; take all its blocks."""
        blocks = -(-computed // self._block_size)
        if not swap or blocks == 0 or blocks > len(self._host_free):
            return self._device.evict(sequence, computed=computed, swap=False)
        for block in sequence.blocks[:blocks]:
            host = self._host_free.pop()
            self._out.append((block, host))
            sequence.host_blocks.append(host)
        self._device.release(sequence)
        return Eviction.SWAPPED

    def restore(self, sequence: Sequence) -> bool:
        """Bring a swapped-out sequence's blocks back. False: no room now, nothing changed."""
        if not self._device.grow(sequence, len(sequence.host_blocks) * self._block_size):
            return False
        self._in.extend(zip(sequence.host_blocks, sequence.blocks, strict=True))
        self._host_read.extend(sequence.host_blocks)
        sequence.host_blocks.clear()
        return True

    def release(self, sequence: Sequence) -> None:
        """Give back all its blocks, on the device and on the host."""
        self._device.release(sequence)
        self._host_free.extend(sequence.host_blocks)
        sequence.host_blocks.clear()

    def forget(self) -> None:
        """The device's pool was made anew; what the host holds stays valid."""
        self._device.forget()

    def take_moves(self) -> Moves:
        """Copies out, the forks' copies, copies in."""
        forks = self._device.take_moves()
        moves = Moves(*columns(self._out), forks.copied_from, forks.copied_to, *columns(self._in))
        self._out.clear()
        self._in.clear()
        self._host_free.extend(self._host_read)
        self._host_read.clear()
        return moves

    def stats(self) -> KvStats:
        """Counters, O(1)."""
        return attrs.evolve(
            self._device.stats(), host_total=self._host_total, host_free=len(self._host_free)
        )
