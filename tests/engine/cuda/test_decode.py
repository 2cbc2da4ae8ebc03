"""Paged decode under emulation, against float64 attention over plain K and V."""

import itertools

import attrs
import numpy as np
import pytest
import torch

from cuda_emulation.program import ORDERS, Compiler, Program
from decoding import LENGTHS, Decoding, make_decoding, rows_and_partials
from plancha_engine.cuda.attention_shape import (
    BLOCK_SIZES,
    DTYPES,
    HEAD_DIMS,
    AttentionShape,
    Cores,
)
from plancha_engine.cuda.decode import (
    GROUPS,
    decode,
    decode_items,
    decode_kernel,
    merge_kernel,
)


def run_in_all_orders(program: Program, decoding: Decoding) -> None:
    results = []
    for order in ORDERS:
        decoding.out.fill_(torch.nan)
        program.run(decoding.launches, order, copy_early=order == "random")
        results.append(decoding.out.clone())
    untouched = torch.ones(len(decoding.out), dtype=torch.bool)
    untouched[decoding.tokens] = False
    assert decoding.out[untouched].isnan().all()
    assert decoding.worst_error() <= 1
    for result in results[1:]:  # NaNs too: compared as bits
        assert torch.equal(results[0].view(torch.int16), result.view(torch.int16))


def build(compiler: Compiler, shapes: list[AttentionShape], cores: Cores) -> Program:
    kernels = [(decode_kernel(shape, cores), merge_kernel(shape)) for shape in shapes]
    return compiler.build(list(itertools.chain.from_iterable(kernels)))


EVERY_KIND: list[tuple[Cores, AttentionShape]] = [
    ("cuda", AttentionShape(torch.bfloat16, 2, 4, 64, 16)),
    ("cuda", AttentionShape(torch.float16, 1, 3, 96, 32)),
    ("cuda", AttentionShape(torch.bfloat16, 2, 1, 96, 16)),
    ("cuda", AttentionShape(torch.float16, 2, 2, 128, 16)),
    ("cuda", AttentionShape(torch.bfloat16, 1, 9, 128, 32)),  # in two tiles
    ("tensor", AttentionShape(torch.bfloat16, 2, 4, 128, 16)),
    ("tensor", AttentionShape(torch.float16, 1, 7, 96, 32)),
    ("tensor", AttentionShape(torch.bfloat16, 1, 17, 64, 32)),  # in two tiles
]
"""Each value of each template parameter."""


def program_of(compiler: Compiler, cores: Cores) -> Program:
    """All of `EVERY_KIND` on these cores, so that they are compiled together."""
    return build(compiler, [shape for some, shape in EVERY_KIND if some == cores], cores)


@pytest.mark.parametrize(("cores", "shape"), EVERY_KIND, ids=str)
def test_every_kind_of_decode_agrees_with_float64_in_any_order_of_threads(
    compiler: Compiler, cores: Cores, shape: AttentionShape
) -> None:
    program = program_of(compiler, cores)
    for split_tokens in (32, 256):
        run_in_all_orders(program, make_decoding(shape, cores, split_tokens))


@pytest.mark.emulation
@pytest.mark.parametrize(
    ("cores", "dtype", "head_dim", "block_size"),
    list(itertools.product(GROUPS, DTYPES, HEAD_DIMS, BLOCK_SIZES)),
    ids=str,
)
def test_every_instantiation_of_decode_agrees_with_float64(
    compiler: Compiler, cores: Cores, dtype: torch.dtype, head_dim: int, block_size: int
) -> None:
    groups = (1, 2, 3, 4, 7, 8) if cores == "cuda" else (1, 4, 8, 12, 16)
    shapes = [AttentionShape(dtype, 2, group, head_dim, block_size) for group in groups]
    program = build(compiler, shapes, cores)
    for shape, split_tokens in itertools.product(shapes, (32, 64, 256)):
        run_in_all_orders(program, make_decoding(shape, cores, split_tokens))


@pytest.mark.parametrize(("cores", "shape"), [EVERY_KIND[0], EVERY_KIND[5]], ids=str)
def test_a_rows_result_is_the_same_alone_and_in_a_batch(
    compiler: Compiler, cores: Cores, shape: AttentionShape
) -> None:
    program = program_of(compiler, cores)
    batch = make_decoding(shape, cores, split_tokens=32)
    program.run(batch.launches)
    row = LENGTHS.index(131)
    case = batch.case
    alone_case = attrs.evolve(case, lengths=(131,), slots=case.slots[row : row + 1])
    rows, partials = rows_and_partials(alone_case, batch.tokens[row : row + 1], 32)
    out = torch.empty_like(batch.out)
    program.run(decode(shape, out, batch.queries, case.keys, case.values, rows, partials, cores))
    token = batch.tokens[row]
    assert torch.equal(out[token], batch.out[token])


@pytest.mark.parametrize(("cores", "shape"), [EVERY_KIND[0], EVERY_KIND[5]], ids=str)
def test_large_scores_do_not_overflow(
    compiler: Compiler, cores: Cores, shape: AttentionShape
) -> None:
    decoding = make_decoding(shape, cores, split_tokens=32, lengths=(70,))
    decoding.queries.mul_(200)  # scores of thousands: exp() of one is far out of float32
    program_of(compiler, cores).run(decoding.launches)
    token = decoding.tokens[0]
    expected = decoding.case.attention(0, decoding.queries[token], 70)
    assert (decoding.out[token].double() - expected).abs().max() < 0.05


def test_a_shape_that_has_no_kernel_is_named() -> None:
    with pytest.raises(ValueError, match=r"head_dim = 80: there are kernels for \(64, 96, 128\)"):
        AttentionShape(torch.bfloat16, 1, 1, 80, 16)


def test_items_are_the_rows_splits_side_by_side() -> None:
    items, first_items = decode_items(np.array([0, 64, 65, 1, 130], np.int32), split_tokens=64)
    expected = [[0, 0], [1, 0], [2, 0], [2, 1], [3, 0], [4, 0], [4, 1], [4, 2]]
    assert items.tolist() == expected
    assert first_items.tolist() == [0, 1, 2, 4, 5]


def test_more_items_than_there_is_room_for_are_refused() -> None:
    decoding = make_decoding(EVERY_KIND[0][1], "cuda", split_tokens=32)
    rows, partials = rows_and_partials(decoding.case, decoding.tokens, 32)
    small = attrs.evolve(partials, values=partials.values[:3])
    keys, values = decoding.case.keys, decoding.case.values
    with pytest.raises(ValueError, match="16 items; there is room for 3"):
        decode(
            decoding.case.shape, decoding.out, decoding.queries, keys, values, rows, small, "cuda"
        )
