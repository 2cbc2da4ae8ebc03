"""Launches of chunked prefill; `source/prefill.cu` has the layouts, both files algorithms."""

import math
from collections.abc import Mapping

import attrs
import numpy as np
import torch

from plancha.messages import Int32s
from plancha_engine.cuda.attention_shape import AttentionShape, Cores, tile_bytes
from plancha_engine.cuda.launch import Kernel, Launch, Parameter, launch
from plancha_engine.cuda.sources import source

SOURCE = ("prefill.cu", "tensor_rows.cuh", "prefill_tensor.cu")
WARPS = 4
QUERIES: Mapping[Cores, int] = {"cuda": 16, "tensor": 64}
"""Of a thread block: of some tokens, all heads of a KV head's group."""

TILE = 32  # tokens of the context at a time
STAGES, STAGE_TILES = 2, 2  # on tensor cores


@attrs.frozen(eq=False)
class PrefillRows:
    """Rows of consecutive new tokens of a sequence each, int32 on the device."""

    items: torch.Tensor  # [items, 2], see `prefill_items`
    first: torch.Tensor  # [rows + 1] row r has the tokens first[r] to first[r + 1] - 1
    positions: torch.Tensor  # [tokens] in their sequences
    slots: torch.Tensor  # [rows] a row's line of the block table
    block_table: torch.Tensor  # [slots, most blocks of a sequence]


def prefill_items(first: Int32s, group: int, cores: Cores) -> Int32s:
    """The thread blocks' shares, `[items, 2]`: row, and the first of its queries of a KV head.

    `first` is `[rows + 1]`; a row has `group` queries a token. What sees most context comes
    first within a row, since a GPU starts thread blocks in their order.
    """
    items = [
        (row, query)
        for row in range(first.size - 1)
        for query in reversed(range(0, int(first[row + 1] - first[row]) * group, QUERIES[cores]))
    ]
    return np.array(items, np.int32).reshape(-1, 2)


def prefill_kernel(shape: AttentionShape, cores: Cores) -> Kernel:
    """The instantiation for a model. CUDA cores are the baseline that tensor cores are held to."""
    element, name = shape.element, "prefill" if cores == "cuda" else "prefill_tensor"
    return Kernel(
        f"{name}<{element}, {shape.head_dim}, {shape.block_size}>",
        source(*SOURCE),
        (
            Parameter("out", f"{element}*", alignment=4),
            Parameter("queries", f"const {element}*", alignment=4),
            Parameter("keys", f"const {element}*", alignment=16),
            Parameter("values", f"const {element}*", alignment=16),
            Parameter("block_table", "const int*"),
            Parameter("items", "const int*"),
            Parameter("first", "const int*"),
            Parameter("positions", "const int*"),
            Parameter("slots", "const int*"),
            Parameter("query_stride", "long long"),
            Parameter("table_width", "int"),
            Parameter("group", "int"),
            Parameter("scale", "float"),
        ),
    )


def prefill(
    shape: AttentionShape,
    out: torch.Tensor,
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    rows: PrefillRows,
    cores: Cores,
) -> Launch:
    """After this launch `out` holds the attention of all rows' tokens.

    `out` is `[tokens, heads head_dim]` and contiguous, `queries` begins with the tokens' rotated
    queries `[tokens, heads head_dim, …]`, and `keys` and `values` are a layer's pool
    `[blocks, kv_heads, block_size, head_dim]` with the new tokens written.
    """
    stride = queries.stride(0)
    if stride % 2:
        raise ValueError(f"queries are {stride} elements apart; it must be an even number")
    return launch(
        prefill_kernel(shape, cores),
        grid=(rows.items.shape[0], shape.kv_heads, 1),
        block=(WARPS * 32, 1, 1),
        shared_bytes=_shared_bytes(shape, cores),
        arguments={
            "out": out,
            "queries": queries,
            "keys": keys,
            "values": values,
            "block_table": rows.block_table,
            "items": rows.items,
            "first": rows.first,
            "positions": rows.positions,
            "slots": rows.slots,
            "query_stride": np.int64(stride),
            "table_width": np.int32(rows.block_table.shape[1]),
            "group": np.int32(shape.group),
            "scale": np.float32(shape.head_dim**-0.5 * math.log2(math.e)),
        },
    )


def _shared_bytes(shape: AttentionShape, cores: Cores) -> int:
    """Tiles; on CUDA cores a `PrefillTile`, whose keys take a word more than a head."""
    if cores == "tensor":
        return STAGES * STAGE_TILES * tile_bytes(shape)
    values = TILE * shape.head_dim * shape.dtype.itemsize
    queries, weights = QUERIES[cores] * shape.head_dim * 4, QUERIES[cores] * TILE * 4
    keys = TILE * (shape.head_dim // 2 + 1) * 4
    return values + queries + weights + keys
