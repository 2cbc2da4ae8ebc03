"""Launches of paged decode; `source/splits.cuh` has layouts, `source/decode*.cu` algorithms.

Small groups of query heads go to CUDA cores, where a token's K and V cost more than what is
computed with them; from `TENSOR_GROUP` on it is the other way round, and tensor cores do it.
"""

import math
from collections.abc import Mapping

import attrs
import numpy as np
import torch

from plancha.messages import Int32s
from plancha_engine.cuda.attention_shape import AttentionShape, Cores, tile_bytes
from plancha_engine.cuda.launch import Kernel, Launch, Parameter, launch
from plancha_engine.cuda.sources import source

SOURCE = ("splits.cuh", "decode.cu", "tensor_rows.cuh", "decode_tensor.cu")
WARPS = 4
GROUPS: Mapping[Cores, tuple[int, ...]] = {"cuda": (1, 2, 4, 8), "tensor": (8, 16)}
"""Query heads that one thread block computes; larger groups take several blocks."""

TENSOR_GROUP = 4
STAGES = 2  # of tiles on tensor cores


@attrs.frozen(eq=False)
class DecodeRows:
    """Sequences of one new token each, int32 on the device."""

    tokens: torch.Tensor  # [rows] where a row's query and result are
    slots: torch.Tensor  # [rows] its line of the block table
    lengths: torch.Tensor  # [rows] tokens it attends to, the new one included; 0 gives zeros
    block_table: torch.Tensor  # [slots, most blocks of a sequence]
    items: torch.Tensor  # [items, 2], see `decode_items`
    first_items: torch.Tensor  # [rows]


@attrs.frozen(eq=False)
class Partials:
    """Results of splits before they are merged, float32 on the device; contents never matter."""

    values: torch.Tensor  # [items, heads, head_dim]
    statistics: torch.Tensor  # [items, heads, 2]
    split_tokens: int


def make_partials(
    shape: AttentionShape, items: int, split_tokens: int, device: torch.device
) -> Partials:
    """Room for so many items, each of up to `split_tokens` tokens."""
    return Partials(
        torch.empty((items, shape.heads, shape.head_dim), device=device),
        torch.empty((items, shape.heads, 2), device=device),
        split_tokens,
    )


def decode_items(lengths: Int32s, split_tokens: int) -> tuple[Int32s, Int32s]:
    """The thread blocks' shares `[items, 2]`, row and split, and each row's first item `[rows]`.

    A row of no tokens has a share as well: somebody has to write its zeros. Shares of a row < 0
    may follow, for a grid of a fixed size.
    """
    splits = np.maximum(1, -(-lengths // np.int32(split_tokens)))
    first = np.cumsum(splits, dtype=np.int32) - splits
    rows = np.repeat(np.arange(lengths.size, dtype=np.int32), splits)
    within = np.arange(rows.size, dtype=np.int32) - first[rows]
    return np.stack((rows, within), axis=1), first


def usual_cores(shape: AttentionShape) -> Cores:
    """Those that decode of such a model is made for."""
    return "tensor" if shape.group >= TENSOR_GROUP else "cuda"


def decode_kernel(shape: AttentionShape, cores: Cores) -> Kernel:
    """The instantiation for a model."""
    element, name = shape.element, "decode" if cores == "cuda" else "decode_tensor"
    return Kernel(
        f"{name}<{element}, {shape.head_dim}, {_tile(shape.group, cores)}, {shape.block_size}>",
        source(*SOURCE),
        (
            Parameter("out", f"{element}*"),
            Parameter("partial_values", "float*"),
            Parameter("partial_statistics", "float*"),
            Parameter("queries", f"const {element}*", alignment=16),
            Parameter("keys", f"const {element}*", alignment=16),
            Parameter("values", f"const {element}*", alignment=16),
            Parameter("items", "const int*"),
            Parameter("block_table", "const int*"),
            Parameter("tokens", "const int*"),
            Parameter("slots", "const int*"),
            Parameter("lengths", "const int*"),
            Parameter("query_stride", "long long"),
            Parameter("table_width", "int"),
            Parameter("group", "int"),
            Parameter("split_tokens", "int"),
            Parameter("scale", "float"),
        ),
    )


def merge_kernel(shape: AttentionShape) -> Kernel:
    """What follows `decode_kernel`, on whichever cores."""
    return Kernel(
        f"merge_splits<{shape.element}, {shape.head_dim}>",
        source(*SOURCE),
        (
            Parameter("out", f"{shape.element}*"),
            Parameter("partial_values", "const float*"),
            Parameter("partial_statistics", "const float*"),
            Parameter("first_items", "const int*"),
            Parameter("tokens", "const int*"),
            Parameter("lengths", "const int*"),
            Parameter("split_tokens", "int"),
        ),
    )


def decode(
    shape: AttentionShape,
    out: torch.Tensor,
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    rows: DecodeRows,
    partials: Partials,
    cores: Cores,
) -> tuple[Launch, Launch]:
    """The two launches, in their order, after which `out` holds the rows' attention.

    `out` is `[tokens, heads head_dim]` and contiguous, `queries` begins with the tokens' rotated
    queries `[tokens, heads head_dim, …]`, and `keys` and `values` are a layer's pool
    `[blocks, kv_heads, block_size, head_dim]`. `rows.items` were made for the splits of `partials`.
    """
    tile = _tile(shape.group, cores)
    tiles = -(-shape.group // tile)
    items = rows.items.shape[0]
    if items > partials.values.shape[0]:
        raise ValueError(f"{items} items; there is room for {partials.values.shape[0]}")
    split_tokens = np.int32(partials.split_tokens)
    stride = queries.stride(0)
    if stride % 8:
        raise ValueError(f"queries are {stride} elements apart; it must be a multiple of 8")
    return launch(
        decode_kernel(shape, cores),
        grid=(items, shape.kv_heads * tiles, 1),
        block=(WARPS * 32, 1, 1),
        shared_bytes=_shared_bytes(shape, tile, cores),
        arguments={
            "out": out,
            "partial_values": partials.values,
            "partial_statistics": partials.statistics,
            "queries": queries,
            "keys": keys,
            "values": values,
            "items": rows.items,
            "block_table": rows.block_table,
            "tokens": rows.tokens,
            "slots": rows.slots,
            "lengths": rows.lengths,
            "query_stride": np.int64(stride),
            "table_width": np.int32(rows.block_table.shape[1]),
            "group": np.int32(shape.group),
            "split_tokens": split_tokens,
            "scale": np.float32(shape.head_dim**-0.5 * math.log2(math.e)),
        },
    ), launch(
        merge_kernel(shape),
        grid=(shape.heads, rows.lengths.shape[0], 1),
        block=(shape.head_dim, 1, 1),
        shared_bytes=0,
        arguments={
            "out": out,
            "partial_values": partials.values,
            "partial_statistics": partials.statistics,
            "first_items": rows.first_items,
            "tokens": rows.tokens,
            "lengths": rows.lengths,
            "split_tokens": split_tokens,
        },
    )


def _tile(group: int, cores: Cores) -> int:
    """The smallest that holds the group, or the largest there is."""
    tiles = GROUPS[cores]
    return next((tile for tile in tiles if tile >= group), tiles[-1])


def _shared_bytes(shape: AttentionShape, tile: int, cores: Cores) -> int:
    """The warps' sums and statistics; on tensor cores their place has been the tiles' before."""
    sums = WARPS * tile * (shape.head_dim + 2) * 4
    if cores == "cuda":
        return sums
    return max(sums, WARPS * STAGES * tile_bytes(shape))
