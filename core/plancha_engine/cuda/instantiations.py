"""Every instantiation that a model can ask for."""

import itertools
from collections.abc import Iterator

from plancha_engine.cuda.attention_shape import BLOCK_SIZES, DTYPES, HEAD_DIMS, AttentionShape
from plancha_engine.cuda.decode import GROUPS, decode_kernel, merge_kernel, usual_cores
from plancha_engine.cuda.launch import Kernel
from plancha_engine.cuda.pool_writes import copy_kernel, write_kernel
from plancha_engine.cuda.prefill import prefill_kernel


def all_shapes() -> Iterator[AttentionShape]:
    """One of each kind that takes another instantiation."""
    groups = sorted({group for groups in GROUPS.values() for group in groups})
    for dtype, head_dim, block_size, group in itertools.product(
        DTYPES, HEAD_DIMS, BLOCK_SIZES, groups
    ):
        yield AttentionShape(dtype, 1, group, head_dim, block_size)


def kernels_of(shape: AttentionShape) -> tuple[Kernel, ...]:
    """What a model of this shape needs compiled before its first request."""
    return (
        decode_kernel(shape, usual_cores(shape)),
        merge_kernel(shape),
        prefill_kernel(shape, "tensor"),
        write_kernel(shape),
        copy_kernel(),
    )


def all_kernels() -> tuple[Kernel, ...]:
    """The kernels of all shapes, each once, and the baselines on CUDA cores."""
    shapes = list(all_shapes())
    kernels = itertools.chain.from_iterable(kernels_of(shape) for shape in shapes)
    baseline = (
        kernel(shape, "cuda") for shape in shapes for kernel in (decode_kernel, prefill_kernel)
    )
    return tuple(dict.fromkeys((*kernels, *baseline)))
