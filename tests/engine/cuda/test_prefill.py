"""Chunked prefill under emulation, against float64 attention over plain K and V."""

import itertools

import attrs
import numpy as np
import pytest
import torch

from cuda_emulation.program import ORDERS, Compiler, Order, Program, Sanitizer
from paged_case import PagedCase, make_paged_case, worst_error
from plancha_engine.cuda.attention_shape import (
    BLOCK_SIZES,
    DTYPES,
    HEAD_DIMS,
    AttentionShape,
    Cores,
)
from plancha_engine.cuda.prefill import QUERIES, PrefillRows, prefill, prefill_items, prefill_kernel

Chunk = tuple[int, int, int]
"""Sequence, position of its first token, and how many."""

LENGTHS = (1, 33, 70, 16)
CHUNKS: tuple[Chunk, ...] = ((0, 0, 1), (1, 0, 33), (2, 61, 9), (3, 15, 1))


def int32(numbers: list[int]) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


@attrs.frozen(eq=False)
class Prefilling:
    """A batch of chunks; positions of all tokens that there are have queries of their own."""

    case: PagedCase
    cores: Cores
    queries: tuple[torch.Tensor, ...]  # of each sequence [length, heads, head_dim]

    def attended(
        self, program: Program, chunks: tuple[Chunk, ...], order: Order = "forward"
    ) -> torch.Tensor:
        """`[tokens, heads, head_dim]` of the chunks' tokens end to end."""
        shape = self.case.shape
        counts = [count for _, _, count in chunks]
        first = np.cumsum([0, *counts], dtype=np.int32)
        queries = torch.cat(
            [self.queries[row][start : start + count] for row, start, count in chunks]
        )
        columns = shape.heads * shape.head_dim
        qkv = torch.full((len(queries), columns + 10), torch.nan, dtype=shape.dtype)
        qkv[:, :columns] = queries.flatten(1)
        out = torch.full_like(queries, torch.nan)
        rows = PrefillRows(
            torch.from_numpy(prefill_items(first, shape.group, self.cores)),
            torch.from_numpy(first),
            int32([start + i for _, start, count in chunks for i in range(count)]),
            self.case.slots[[row for row, _, _ in chunks]],
            self.case.block_table,
        )
        one = prefill(shape, out, qkv, self.case.keys, self.case.values, rows, self.cores)
        program.run([one], order, copy_early=order == "random")
        return out

    def error(self, result: torch.Tensor, chunks: tuple[Chunk, ...]) -> float:
        """See `paged_case.worst_error`."""
        return worst_error(result, self.expected(chunks), rounded_weights=self.cores == "tensor")

    def expected(self, chunks: tuple[Chunk, ...]) -> torch.Tensor:
        """The same in float64."""
        return torch.stack(
            [
                self.case.attention(row, self.queries[row][position], position + 1)
                for row, start, count in chunks
                for position in range(start, start + count)
            ]
        )


def make_prefilling(shape: AttentionShape, cores: Cores) -> Prefilling:
    numbers = torch.Generator().manual_seed(shape.head_dim)
    sizes = [(length, shape.heads, shape.head_dim) for length in LENGTHS]
    queries = tuple(torch.randn(size, generator=numbers).to(shape.dtype) for size in sizes)
    return Prefilling(make_paged_case(shape, LENGTHS), cores, queries)


def check_in_all_orders(program: Program, shape: AttentionShape, cores: Cores) -> None:
    prefilling = make_prefilling(shape, cores)
    results = [prefilling.attended(program, CHUNKS, order) for order in ORDERS]
    assert prefilling.error(results[0], CHUNKS) <= 1
    assert all(torch.equal(results[0], result) for result in results[1:])


EVERY_KIND: list[tuple[Cores, AttentionShape]] = [
    ("cuda", AttentionShape(torch.bfloat16, 2, 3, 64, 16)),
    ("cuda", AttentionShape(torch.float16, 1, 4, 96, 32)),
    ("cuda", AttentionShape(torch.bfloat16, 1, 1, 128, 16)),
    ("tensor", AttentionShape(torch.bfloat16, 2, 3, 128, 16)),
    ("tensor", AttentionShape(torch.float16, 1, 4, 96, 32)),
    ("tensor", AttentionShape(torch.bfloat16, 1, 1, 64, 32)),
]
"""Each value of each template parameter; groups that divide a thread block's queries, and not."""
ONE_OF_EACH = [EVERY_KIND[0], EVERY_KIND[3]]


def program_of(compiler: Compiler, cores: Cores) -> Program:
    """All of `EVERY_KIND` on these cores, so that they are compiled together."""
    kernels = [prefill_kernel(shape, cores) for some, shape in EVERY_KIND if some == cores]
    return compiler.build(kernels)


@pytest.mark.parametrize(("cores", "shape"), EVERY_KIND, ids=str)
def test_every_kind_of_prefill_agrees_with_float64_in_any_order_of_threads(
    compiler: Compiler, cores: Cores, shape: AttentionShape
) -> None:
    check_in_all_orders(program_of(compiler, cores), shape, cores)


@pytest.mark.emulation
@pytest.mark.parametrize(
    ("cores", "dtype", "head_dim", "block_size"),
    list(itertools.product(QUERIES, DTYPES, HEAD_DIMS, BLOCK_SIZES)),
    ids=str,
)
def test_every_instantiation_of_prefill_agrees_with_float64(
    compiler: Compiler, cores: Cores, dtype: torch.dtype, head_dim: int, block_size: int
) -> None:
    shapes = [AttentionShape(dtype, 2, group, head_dim, block_size) for group in (1, 4, 7, 20)]
    program = compiler.build([prefill_kernel(shape, cores) for shape in shapes])
    for shape in shapes:
        check_in_all_orders(program, shape, cores)


@pytest.mark.parametrize(("cores", "shape"), ONE_OF_EACH, ids=str)
def test_a_tokens_result_is_the_same_bits_in_any_chunk(
    compiler: Compiler, cores: Cores, shape: AttentionShape
) -> None:
    program = program_of(compiler, cores)
    prefilling = make_prefilling(shape, cores)
    whole = prefilling.attended(program, ((2, 0, 70),))
    for cuts in ((0, 1, 40, 70), (0, 33, 64, 70)):
        chunks = [(2, start, end - start) for start, end in itertools.pairwise(cuts)]
        parts = [prefilling.attended(program, (chunk,)) for chunk in chunks]
        assert torch.equal(torch.cat(parts), whole)


@pytest.mark.parametrize(("cores", "shape"), ONE_OF_EACH, ids=str)
@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_sanitizers_have_nothing_to_say_about_prefill(
    compiler: Compiler, cores: Cores, shape: AttentionShape, sanitizer: Sanitizer
) -> None:
    program = compiler.build([prefill_kernel(shape, cores)], sanitizer)
    prefilling, chunks = make_prefilling(shape, cores), CHUNKS[2:]
    for order in ("forward", "random"):  # with late copies, and with early ones
        assert prefilling.error(prefilling.attended(program, chunks, order), chunks) <= 1


def test_items_cover_every_query_once() -> None:
    items = prefill_items(np.array([0, 1, 1, 12], np.int32), group=3, cores="cuda")
    assert items.tolist() == [[0, 0], [2, 32], [2, 16], [2, 0]]
