"""Whose every block of the KV pool is, as one small number a block."""

from collections.abc import Iterable, Mapping
from itertools import chain

import attrs
import numpy as np

from plancha.contracts import Allocator
from plancha.messages import Int32s
from plancha.sequence import Sequence

FREE, CACHED, OTHER, HELD = 0, 1, 2, 3
"""Nobody's; nobody's, with content that can be found; of several tenants, or of one who is not
named; and from here on a pair for each tenant: held by one of its sequences, and by several."""

MOST_CELLS = 8192
"""That a map tells of; of a larger pool it tells of every second block, or third, …"""


@attrs.frozen(eq=False)
class BlockMap:
    """`codes` are int32 [blocks]; `held` is by tenant how many it holds, and how many of these
    more than one of its sequences does."""

    codes: Int32s
    held: Mapping[str, tuple[int, int]]


def block_map(
    sequences: Iterable[Sequence], tenants: Mapping[str, int], allocator: Allocator
) -> BlockMap:
    """A map of the pool, in which tenants have the numbers that `tenants` gives them."""
    codes = np.full(allocator.stats().total, FREE, np.int32)
    find_cached = getattr(allocator, "cached_blocks", None)
    if find_cached is not None:
        codes[_blocks(find_cached())] = CACHED
    tables: dict[str, list[list[int]]] = {}
    for sequence in sequences:
        if sequence.blocks:
            tables.setdefault(sequence.tenant, []).append(sequence.blocks)
    held: dict[str, tuple[int, int]] = {}
    for tenant, own in tables.items():
        blocks, holders = np.unique(_blocks(chain.from_iterable(own)), return_counts=True)
        shared = holders > 1
        mine = HELD + 2 * tenants[tenant] + shared
        codes[blocks] = np.where(codes[blocks] < OTHER, mine, OTHER)
        held[tenant] = int(blocks.size), int(shared.sum())
    return BlockMap(codes, held)


def own_map(total: int, held: int, shared: int) -> Int32s:
    """What one tenant may see: how much it holds of how much, and no block's place.

    Where its blocks lie would tell how many others took in between.
    """
    codes = np.full(total, OTHER, np.int32)
    codes[:held] = HELD
    codes[held - shared : held] = HELD + 1
    return codes


def stride_of(total: int) -> int:
    """Every which block a map tells of."""
    return max(1, -(-total // MOST_CELLS))


def runs(codes: Int32s) -> list[int]:
    """Code, how often in a row, code, how often, …"""
    if codes.size == 0:
        return []
    starts = np.concatenate(([0], np.flatnonzero(np.diff(codes)) + 1))
    lengths = np.diff(starts, append=codes.size)
    found: list[int] = np.stack([codes[starts], lengths], axis=1).reshape(-1).tolist()
    return found


def _blocks(numbers: Iterable[int]) -> Int32s:
    return np.fromiter(numbers, np.int32)
