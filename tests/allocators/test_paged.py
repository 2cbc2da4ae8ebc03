"""The free list: whole blocks, one holder each, all or nothing."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plancha_allocators.paged import Paged


def holder() -> Any:
    return SimpleNamespace(stream=7, blocks=[], committed_blocks=0)


def test_need_counts_the_blocks_still_missing() -> None:
    allocator, sequence = Paged(8, 16), holder()
    assert [allocator.need(tokens) for tokens in (0, 1, 16, 17, 200)] == [0, 1, 1, 2, 13]
    allocator.grow(sequence, 17)
    assert [allocator.need(tokens, sequence) for tokens in (1, 32, 33)] == [0, 0, 1]


def test_grow_is_all_or_nothing() -> None:
    allocator, sequence = Paged(3, 16), holder()
    assert allocator.grow(sequence, 20)
    before = list(sequence.blocks)
    assert not allocator.grow(sequence, 64)
    assert sequence.blocks == before
    assert allocator.stats().free == 1


def test_a_second_release_of_a_block_raises() -> None:
    allocator, sequence = Paged(4, 16), holder()
    allocator.grow(sequence, 20)
    stolen: Any = SimpleNamespace(stream=8, blocks=list(sequence.blocks))
    allocator.release(sequence)
    allocator.release(sequence)  # holds none: nothing to do
    with pytest.raises(RuntimeError, match="no holder"):
        allocator.release(stolen)
    assert allocator.stats().free == 4


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 120)), max_size=60))
def test_every_block_has_one_holder_or_is_free(moves: list[tuple[int, int]]) -> None:
    allocator = Paged(12, 16)
    holders = [holder() for _ in range(6)]
    for who, tokens in moves:
        if tokens == 0:
            allocator.release(holders[who])
        else:
            fits = allocator.need(tokens, holders[who]) <= allocator.stats().free
            assert allocator.grow(holders[who], tokens) is fits
        held = [block for one in holders for block in one.blocks]
        assert len(held) == len(set(held))
        assert len(held) + allocator.stats().free == 12
        assert allocator.freeable(holders) == len(held) == allocator.stats().used
