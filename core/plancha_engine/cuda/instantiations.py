"""Every instantiation that a model can ask for."""

import itertools
from collections.abc import Iterator

from plancha_engine.cuda.attention_shape import BLOCK_SIZES, DTYPES, HEAD_DIMS, AttentionShape
from plancha_engine.cuda.decode import GROUPS, decode_kernel, merge_kernel
from plancha_engine.cuda.launch import Kernel
from plancha_engine.cuda.pool_writes import copy_kernel, write_kernel


def all_shapes() -> Iterator[AttentionShape]:
    """One of each kind that takes another instantiation."""
    for dtype, head_dim, block_size, group in itertools.product(
        DTYPES, HEAD_DIMS, BLOCK_SIZES, GROUPS
    ):
        yield AttentionShape(dtype, 1, group, head_dim, block_size)


def kernels_of(shape: AttentionShape) -> tuple[Kernel, ...]:
    """What a model of this shape needs compiled before its first request."""
    return (
        decode_kernel(shape),
        merge_kernel(shape),
        write_kernel(shape),
        copy_kernel(),
    )


def all_kernels() -> tuple[Kernel, ...]:
    """The kernels of all shapes, each once."""
    kernels = itertools.chain.from_iterable(kernels_of(shape) for shape in all_shapes())
    return tuple(dict.fromkeys(kernels))
