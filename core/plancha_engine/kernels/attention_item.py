"""The attention of a few queries over one sequence's blocks: one thread's unit of work.

The queries are those of some positions and of all heads that share a KV head, so K and V are read
once for all of them. Scores and the weighted sum of values are tile products: K lies in its block
as `[head_dim, slot]`, V as `[slot, head_dim]`, so either has its columns side by side. The softmax
is online (Milakov & Gimelshein 2018): a new maximum rescales what was summed so far.
"""

from typing import NamedTuple

import numpy as np

from plancha.messages import Int32s
from plancha_engine.arrays import Float32s
from plancha_engine.kernels.compiling import inlined
from plancha_engine.kernels.exponential import exp
from plancha_engine.kernels.tiles import Rows, multiply_8, multiply_16
from plancha_engine.kernels.vectors import (
    LANES,
    LINE,
    fill,
    highest,
    load,
    maximum,
    store,
    total,
)

QUERIES = 24
"""Queries of an item, at most: what they need beside a span's K and V stays in the L1 cache."""

SPAN = 64
"""Slots whose scores are taken before the softmax moves on, if a block is not more than that."""

_MASKED = np.float32(-1e30)
_VECTOR_BYTES = 4 * LANES


class Scratch(NamedTuple):
    """Memory for one item at a time."""

    queries: Float32s  # scaled, [queries, head_dim]
    summed: Float32s  # weighted values so far, [queries, head_dim]
    scores: Float32s  # then weights, [queries, span]
    best: Float32s  # greatest score so far, [queries]
    mass: Float32s  # sum of the weights so far, [queries]
    zero: Float32s  # what sums begin with, [16]


@inlined
def make_scratch(head_dim: int, block_size: int) -> Scratch:
    """For items of up to `QUERIES` queries."""
    span = max(SPAN // block_size, 1) * block_size
    return Scratch(
        np.empty((QUERIES, head_dim), np.float32),
        np.empty((QUERIES, head_dim), np.float32),
        np.empty((QUERIES, span), np.float32),
        np.empty(QUERIES, np.float32),
        np.empty(QUERIES, np.float32),
        np.zeros(16, np.float32),
    )


@inlined
def attend_item(
    qkv: Float32s,
    positions: Int32s,
    first: int,
    count: int,
    head: int,
    group: int,
    blocks: Int32s,
    keys: Float32s,
    values: Float32s,
    scratch: Scratch,
    out: Float32s,
) -> None:
    """Queries `first` to `first + count - 1` of one row of the batch.

    Query q is position `q // group` of `qkv`, `positions` and `out`, and head `q % group` of those
    that share KV head `head`. `keys` are `[blocks, kv_heads, head_dim, block_size]`, `values`
    `[blocks, kv_heads, block_size, head_dim]`.
    """
    kv_heads, block_size, head_dim = values.shape[1:]
    block_bytes = 4 * kv_heads * block_size * head_dim
    keys_at = keys.ctypes.data + head * (block_bytes // kv_heads)
    values_at = values.ctypes.data + head * (block_bytes // kv_heads)
    _begin(qkv, first, count, head, group, scratch)
    end = positions[(first + count - 1) // group] + 1
    span = scratch.scores.shape[1]
    for begin in range(0, end, span):
        slots = min(span, end - begin)
        for slot in range(0, slots, block_size):
            block = blocks[(begin + slot) // block_size] * block_bytes
            _score(keys_at + block, slot, block_size, count, scratch, values_at + block)
        for query in range(count):
            seen = min(positions[(first + query) // group] + 1 - begin, slots)
            _weigh(query, seen, slots, scratch)
        for slot in range(0, slots, block_size):
            block = blocks[(begin + slot) // block_size] * block_bytes
            later = blocks[min(begin + span + slot, end - 1) // block_size] * block_bytes
            height = min(block_size, slots - slot)
            _sum(values_at + block, slot, height, count, scratch, keys_at + later)
    _end(first, count, head, group, scratch, out)


@inlined
def _begin(qkv: Float32s, first: int, count: int, head: int, group: int, scratch: Scratch) -> None:
    head_dim = scratch.queries.shape[1]
    scale = np.float32(1) / np.sqrt(np.float32(head_dim))
    for query in range(count):
        position, member = divmod(first + query, group)
        column = (head * group + member) * head_dim
        for d in range(head_dim):
            scratch.queries[query, d] = qkv[position, column + d] * scale
            scratch.summed[query, d] = 0
        scratch.best[query] = _MASKED
        scratch.mass[query] = 0


@inlined
def _score(keys: int, slot: int, block_size: int, count: int, scratch: Scratch, soon: int) -> None:
    """Scores of all keys of the block at an address, from column `slot`.

    Meanwhile the block at `soon` is fetched: blocks lie anywhere, so the CPU cannot foresee it.
    """
    head_dim, span = scratch.queries.shape[1], scratch.scores.shape[1]
    queries = Rows(scratch.queries.ctypes.data, head_dim)
    zero = Rows(scratch.zero.ctypes.data, 0)
    for column in range(0, block_size, 16):
        columns = Rows(keys + 4 * column, block_size)
        scores = Rows(scratch.scores.ctypes.data + 4 * (slot + column), span)
        if block_size - column >= 16:
            multiply_16(count, queries, columns, head_dim, zero, scores, soon)
        else:
            multiply_8(count, queries, columns, head_dim, zero, scores, soon)
        soon += LINE * head_dim


@inlined
def _weigh(query: int, seen: int, slots: int, scratch: Scratch) -> None:
    """The query's scores become weights, 0 from slot `seen` on.

    What it summed under a lesser maximum is rescaled to the new one.
    """
    scores = scratch.scores[query]
    for slot in range(max(seen, 0), (slots + LANES - 1) // LANES * LANES):
        scores[slot] = _MASKED
    address, end = scores.ctypes.data, scores.ctypes.data + 4 * slots
    before = scratch.best[query]
    maxima = fill(before)
    for at in range(address, end, _VECTOR_BYTES):
        maxima = maximum(maxima, load(at))
    best = highest(maxima)
    sums = fill(np.float32(0))
    for at in range(address, end, _VECTOR_BYTES):
        weights = exp(load(at) - best)
        store(at, weights)
        sums = sums + weights
    rescale = exp(before - best)
    scratch.best[query] = best
    scratch.mass[query] = scratch.mass[query] * rescale + total(sums)
    if rescale != 1:
        for d in range(scratch.summed.shape[1]):
            scratch.summed[query, d] *= rescale


@inlined
def _sum(values: int, slot: int, slots: int, count: int, scratch: Scratch, soon: int) -> None:
    """Add the first `slots` values of the block at an address, by the weights from column `slot`.

    Meanwhile the block at `soon` is fetched.
    """
    head_dim, span = scratch.queries.shape[1], scratch.scores.shape[1]
    weights = Rows(scratch.scores.ctypes.data + 4 * slot, span)
    for column in range(0, head_dim, 16):
        columns = Rows(values + 4 * column, head_dim)
        summed = Rows(scratch.summed.ctypes.data + 4 * column, head_dim)
        if head_dim - column >= 16:
            multiply_16(count, weights, columns, slots, summed, summed, soon)
        else:
            multiply_8(count, weights, columns, slots, summed, summed, soon)
        soon += LINE * slots


@inlined
def _end(first: int, count: int, head: int, group: int, scratch: Scratch, out: Float32s) -> None:
    head_dim = scratch.summed.shape[1]
    for query in range(count):
        position, member = divmod(first + query, group)
        column = (head * group + member) * head_dim
        share = np.float32(1) / scratch.mass[query]
        for d in range(head_dim):
            out[position, column + d] = scratch.summed[query, d] * share
