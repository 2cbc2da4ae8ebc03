"""The paged KV pool of one device: how many blocks fit, and their memory."""

import attrs
import torch

from plancha.contracts import LoadError
from plancha_engine.config import ModelConfig


@attrs.frozen(eq=False)
class KvPool:
    """K and V of all layers, each `[layers, blocks, kv_heads, block_size, head_dim]`.

    Uninitialised: whoever reads must stop at the tokens that were written.
    """

    keys: torch.Tensor
    values: torch.Tensor


def make_pool(config: ModelConfig, blocks: int, block_size: int, dtype: torch.dtype) -> KvPool:
    """A new pool. Memory that no sequence has reached yet is not resident."""
    shape = (config.layers, blocks, config.kv_heads, block_size, config.head_dim)
    return KvPool(torch.empty(shape, dtype=dtype), torch.empty(shape, dtype=dtype))


def blocks_in(memory: int, config: ModelConfig, block_size: int, dtype: torch.dtype) -> int:
    """Blocks that fit into `memory` bytes. Raises `LoadError` with the numbers when none does."""
    factors = (2, config.layers, config.kv_heads, block_size, config.head_dim, dtype.itemsize)
    block_bytes = 1
    for factor in factors:
        block_bytes *= factor
    if memory >= block_bytes:
        return memory // block_bytes
    name = str(dtype).removeprefix("torch.")
    raise LoadError(
        f"memory of {memory} bytes holds 0 blocks: one block takes 2 (K and V)"
        f" x {config.layers} layers x {config.kv_heads} KV heads x {block_size} tokens"
        f" x {config.head_dim} numbers a head x {dtype.itemsize} bytes ({name})"
        f" = {block_bytes} bytes"
    )
