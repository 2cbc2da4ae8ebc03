"""What the attention kernels are instantiated for."""

from typing import Literal

import attrs
import torch

from plancha_engine.cuda.launch import ELEMENTS

Cores = Literal["cuda", "tensor"]

DTYPES = (torch.bfloat16, torch.float16)
HEAD_DIMS = (64, 96, 128)
BLOCK_SIZES = (16, 32)


def _one_of(choices: tuple[object, ...]) -> object:
    def check(_: object, attribute: "attrs.Attribute[object]", value: object) -> None:
        if value not in choices:
            raise ValueError(f"{attribute.name} = {value}: there are kernels for {choices}")

    return check


@attrs.frozen
class AttentionShape:
    """Heads and pool of a model. Raises `ValueError` for what no kernel is there for."""

    dtype: torch.dtype = attrs.field(validator=_one_of(DTYPES))  # type: ignore[call-overload]
    kv_heads: int
    group: int = attrs.field(validator=attrs.validators.ge(1))  # query heads of a KV head
    head_dim: int = attrs.field(validator=_one_of(HEAD_DIMS))  # type: ignore[call-overload]
    block_size: int = attrs.field(validator=_one_of(BLOCK_SIZES))  # type: ignore[call-overload]

    @property
    def element(self) -> str:
        """The CUDA type of queries, K, V and results."""
        return ELEMENTS[self.dtype]

    @property
    def heads(self) -> int:
        """Query heads."""
        return self.kv_heads * self.group


def tile_bytes(shape: AttentionShape) -> int:
    """Of a `TokenTile` in shared memory: K and V of 16 tokens, 8 elements apart."""
    return 2 * 16 * (shape.head_dim + 8) * shape.dtype.itemsize
