"""Sequences whose K and V lie in shuffled blocks, and their attention in float64."""

from collections.abc import Sequence

import attrs
import torch

from plancha_engine.cuda.attention_shape import AttentionShape

NO_BLOCK = 2**30
"""In unused entries of a block table: far outside any pool."""

ROUNDING = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
"""The largest relative error of a number rounded to nearest."""
FLOAT32_SUMS = 2e-5
"""What sums of some hundred terms of about 1 may be wrong by, before they are rounded."""


def worst_error(
    result: torch.Tensor, expected: torch.Tensor, rounded_weights: bool = False
) -> float:
    """The largest error, as a multiple of what rounding alone explains; of a NaN, infinity.

    Where the weights of V are rounded as well, that is as much again of V's size, which is 1.
    """
    allowed = ROUNDING[result.dtype] * (expected.abs() + rounded_weights) + FLOAT32_SUMS
    errors = (result.double() - expected).abs() / allowed
    return errors.nan_to_num(torch.inf).max().item()


@attrs.frozen(eq=False)
class PagedCase:
    """Rows of so many tokens, each; slots and table entries beyond them are poisoned."""

    shape: AttentionShape
    lengths: tuple[int, ...]
    keys: torch.Tensor  # [blocks, kv_heads, block_size, head_dim]; NaN where no token is
    values: torch.Tensor
    block_table: torch.Tensor  # int32 [slots, most blocks]; NO_BLOCK beyond a row's
    slots: torch.Tensor  # int32 [rows]
    plain: tuple[tuple[torch.Tensor, torch.Tensor], ...]  # K and V [length, kv_heads, head_dim]

    def attention(self, row: int, queries: torch.Tensor, context: int) -> torch.Tensor:
        """`[heads, head_dim]` in float64 of queries of that shape, over the first tokens."""
        if context == 0:
            return torch.zeros(queries.shape, dtype=torch.float64)
        keys, values = (
            part[:context].double().repeat_interleave(self.shape.group, 1)
            for part in self.plain[row]
        )
        scores = torch.einsum("hd,thd->ht", queries.double(), keys) / self.shape.head_dim**0.5
        return torch.einsum("ht,thd->hd", scores.softmax(-1), values)


def make_paged_case(shape: AttentionShape, lengths: Sequence[int], seed: int = 0) -> PagedCase:
    """Random K and V; a few blocks belong to nobody."""
    numbers = torch.Generator().manual_seed(seed)
    size = shape.block_size
    counts = [-(-length // size) for length in lengths]
    total = sum(counts) + 3
    free = torch.randperm(total, generator=numbers).tolist()
    pool = (total, shape.kv_heads, size, shape.head_dim)
    keys, values = (torch.full(pool, torch.nan, dtype=shape.dtype) for _ in range(2))
    table = torch.full((len(lengths) + 1, max(counts) + 1), NO_BLOCK, dtype=torch.int32)
    slots = torch.randperm(len(lengths) + 1, generator=numbers)[: len(lengths)].int()
    plain = []
    for row, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        blocks = [free.pop() for _ in range(count)]
        table[slots[row], :count] = torch.tensor(blocks, dtype=torch.int32)
        tokens = [
            torch.randn((length, shape.kv_heads, shape.head_dim), generator=numbers).to(shape.dtype)
            for _ in range(2)
        ]
        for position in range(length):
            block, slot = blocks[position // size], position % size
            keys[block, :, slot] = tokens[0][position]
            values[block, :, slot] = tokens[1][position]
        plain.append((tokens[0], tokens[1]))
    return PagedCase(shape, tuple(lengths), keys, values, table, slots, tuple(plain))
