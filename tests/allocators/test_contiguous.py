"""Slabs of a whole context."""

from types import SimpleNamespace
from typing import Any

from plancha_allocators.contiguous import Contiguous


def test_a_sequence_takes_a_whole_context_of_consecutive_blocks() -> None:
    allocator = Contiguous(blocks=35, block_size=16, context_length=160)
    holders: list[Any] = [SimpleNamespace(blocks=[]) for _ in range(4)]
    assert [allocator.grow(holder, 1) for holder in holders] == [True, True, True, False]
    for holder in holders[:3]:
        first = holder.blocks[0]
        assert holder.blocks == list(range(first, first + 10))
    assert allocator.stats().used == 30
    allocator.release(holders[1])
    assert allocator.grow(holders[3], 150)


def test_a_pool_below_one_slab_holds_nobody() -> None:
    allocator = Contiguous(blocks=9, block_size=16, context_length=160)
    assert allocator.need(1) > allocator.stats().total
