"""Paged causal attention: prefill chunks and decodes of a ragged batch in one call."""

import numpy as np
from numba import prange

from plancha.messages import Int32s, Int64s
from plancha_engine.arrays import Float32s
from plancha_engine.kernels.attention_item import QUERIES, attend_item, make_scratch
from plancha_engine.kernels.compiling import kernel

ITEM_COST = 32
"""What an item costs beyond its context, in tokens of context."""

READING_COST = 10
"""What reading a token's K and V costs, in queries computed over it."""


@kernel("Tuple((i4[:,::1],i8[::1]))(i4[::1],i4[::1],i8,i8,i8)")
def schedule(
    first: Int32s, positions: Int32s, kv_heads: int, group: int, threads: int
) -> tuple[Int32s, Int64s]:
    """Items `[items, 3]` (row, KV head, first query), and where each thread's share begins.

    Row r computes tokens `first[r]` to `first[r + 1]`, each with `group` queries a KV head.
    """
    count = 0
    for row in range(first.size - 1):
        count += kv_heads * ((group * (first[row + 1] - first[row]) + QUERIES - 1) // QUERIES)
    items = np.empty((count, 3), np.int32)
    costs = np.empty(count, np.int64)
    item, cost = 0, 0
    for row in range(first.size - 1):
        queries = group * (first[row + 1] - first[row])
        for head in range(kv_heads):
            for query in range(0, queries, QUERIES):
                end = min(query + QUERIES, queries)
                context = positions[first[row] + (end - 1) // group]
                cost += (context + ITEM_COST) * (end - query + READING_COST)
                items[item, 0], items[item, 1], items[item, 2] = row, head, query
                costs[item] = cost
                item += 1
    bounds = np.zeros(threads + 1, np.int64)
    for thread in range(1, threads):
        bounds[thread] = np.searchsorted(costs, cost * thread // threads)
    bounds[threads] = count
    return items, bounds


@kernel(
    "void(f4[:,::1],i4[::1],i4[::1],i4[::1],i4[:,::1],i4[:,::1],i8[::1],"
    "f4[:,:,:,::1],f4[:,:,:,::1],i8,f4[:,::1])",
    parallel=True,
)
def attend(
    qkv: Float32s,
    positions: Int32s,
    first: Int32s,
    slots: Int32s,
    block_table: Int32s,
    items: Int32s,
    bounds: Int64s,
    keys: Float32s,
    values: Float32s,
    group: int,
    out: Float32s,
) -> None:
    """Attention of the rotated queries that `qkv` begins with, over a layer's keys and values.

    `keys` are `[blocks, kv_heads, head_dim, block_size]`, `values` `[blocks, kv_heads, block_size,
    head_dim]`; row r is the sequence with the blocks `block_table[slots[r]]`. `out` is
    `[tokens, heads head_dim]`.
    """
    for thread in prange(bounds.size - 1):
        scratch = make_scratch(values.shape[3], values.shape[2])
        for i in range(bounds[thread], bounds[thread + 1]):
            row, head, query = items[i, 0], items[i, 1], items[i, 2]
            begin, end = first[row], first[row + 1]
            attend_item(
                qkv[begin:end],
                positions[begin:end],
                query,
                min(QUERIES, group * (end - begin) - query),
                head,
                group,
                block_table[slots[row]],
                keys,
                values,
                scratch,
                out[begin:end],
            )
