"""Launches that write to the KV pool: new tokens, and whole blocks; see `source/pool.cu`."""

import numpy as np
import torch

from plancha_engine.cuda.attention_shape import AttentionShape
from plancha_engine.cuda.launch import Kernel, Launch, Parameter, launch
from plancha_engine.cuda.sources import source

VECTOR_BYTES = 16
MOST_THREADS = 256


def write_kernel(shape: AttentionShape) -> Kernel:
    """The instantiation of `write_kv` for a model."""
    element = shape.element
    return Kernel(
        f"write_kv<{element}, {shape.head_dim}, {shape.block_size}>",
        source("pool.cu"),
        (
            Parameter("keys", f"{element}*", alignment=VECTOR_BYTES),
            Parameter("values", f"{element}*", alignment=VECTOR_BYTES),
            Parameter("new_keys", f"const {element}*", alignment=VECTOR_BYTES),
            Parameter("new_values", f"const {element}*", alignment=VECTOR_BYTES),
            Parameter("blocks", "const int*"),
            Parameter("offsets", "const int*"),
            Parameter("stride", "long long"),
            Parameter("kv_heads", "int"),
        ),
    )


def copy_kernel() -> Kernel:
    """`copy_blocks`, for pools of any shape and type."""
    return Kernel(
        "copy_blocks",
        source("pool.cu"),
        (
            Parameter("to", "void*", alignment=VECTOR_BYTES),
            Parameter("from", "const void*", alignment=VECTOR_BYTES),
            Parameter("to_blocks", "const int*"),
            Parameter("from_blocks", "const int*"),
            Parameter("to_layer_vectors", "long long"),
            Parameter("from_layer_vectors", "long long"),
            Parameter("block_vectors", "long long"),
        ),
    )


def write_kv(
    shape: AttentionShape,
    keys: torch.Tensor,
    values: torch.Tensor,
    new_keys: torch.Tensor,
    new_values: torch.Tensor,
    blocks: torch.Tensor,
    offsets: torch.Tensor,
) -> Launch:
    """Token t's K and V go to slot `offsets[t]` of block `blocks[t]`, or nowhere if that is < 0.

    `keys` and `values` are a layer's pool `[blocks, kv_heads, block_size, head_dim]`; `new_keys`
    and `new_values` begin a row each with `[kv_heads head_dim]` and are equally far apart.
    """
    stride = new_keys.stride(0)
    if stride != new_values.stride(0) or stride % 8:
        raise ValueError(
            f"new keys are {stride} elements apart and new values {new_values.stride(0)};"
            " they must be the same multiple of 8"
        )
    vectors = shape.kv_heads * shape.head_dim * keys.element_size() // VECTOR_BYTES
    return launch(
        write_kernel(shape),
        grid=(blocks.shape[0], 1, 1),
        block=(_threads(vectors), 1, 1),
        shared_bytes=0,
        arguments={
            "keys": keys,
            "values": values,
            "new_keys": new_keys,
            "new_values": new_values,
            "blocks": blocks,
            "offsets": offsets,
            "stride": np.int64(stride),
            "kv_heads": np.int32(shape.kv_heads),
        },
    )


def copy_blocks(
    to: torch.Tensor, origin: torch.Tensor, to_blocks: torch.Tensor, from_blocks: torch.Tensor
) -> Launch:
    """Block `from_blocks[i]` of `origin` over block `to_blocks[i]` of `to`, in every layer.

    `to` and `origin` are contiguous `[layers, blocks, …]`, alike in all but the number of blocks;
    either may be the host's pinned memory, and both may be the same pool as long as no block is
    read and written.
    """
    alike = to.dtype == origin.dtype and to.shape[2:] == origin.shape[2:]
    if not alike or to.shape[0] != origin.shape[0]:
        raise ValueError(f"blocks of {origin.shape} {origin.dtype} into {to.shape} {to.dtype}")
    block_bytes = to[0, 0].numel() * to.element_size()
    if block_bytes % VECTOR_BYTES:
        raise ValueError(f"a block of {block_bytes} bytes; it must be a multiple of {VECTOR_BYTES}")
    vectors = block_bytes // VECTOR_BYTES
    return launch(
        copy_kernel(),
        grid=(to_blocks.shape[0], to.shape[0], 1),
        block=(_threads(vectors), 1, 1),
        shared_bytes=0,
        arguments={
            "to": to,
            "from": origin,
            "to_blocks": to_blocks,
            "from_blocks": from_blocks,
            "to_layer_vectors": np.int64(to.shape[1] * vectors),
            "from_layer_vectors": np.int64(origin.shape[1] * vectors),
            "block_vectors": np.int64(vectors),
        },
    )


def _threads(vectors: int) -> int:
    """Whole warps for so many vectors, up to a limit."""
    return min(MOST_THREADS, -(-vectors // 32) * 32)
