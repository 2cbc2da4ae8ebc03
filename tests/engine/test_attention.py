"""The paged attention kernel against torch's attention over plain, contiguous K and V."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from plancha.messages import Int32s
from plancha_engine.arrays import Float32s
from plancha_engine.kernels.attention import attend, schedule

KV_HEADS = 2
ROWS = ((0, 1), (0, 5), (7, 1), (15, 1), (16, 1), (31, 40), (64, 3), (100, 130), (300, 1))
"""(tokens before the row, tokens in it)."""


class Case:
    """A ragged batch whose K and V lie in shuffled blocks; every other slot of them is NaN."""

    def __init__(self, group: int, head_dim: int, block_size: int) -> None:
        self.numbers = np.random.default_rng(group * head_dim + block_size)
        self.group, self.head_dim, self.block_size = group, head_dim, block_size
        tokens = sum(count for _, count in ROWS)
        self.first: Int32s = np.cumsum([0, *(count for _, count in ROWS)], dtype=np.int32)
        self.positions = np.concatenate(
            [np.arange(start, start + count, dtype=np.int32) for start, count in ROWS]
        )
        widest = -(-max(start + count for start, count in ROWS) // block_size)
        blocks = len(ROWS) * widest
        self.slots = self.numbers.permutation(len(ROWS)).astype(np.int32)
        self.table = self.numbers.permutation(blocks).astype(np.int32).reshape(-1, widest)
        shape = (blocks, KV_HEADS, head_dim, block_size)
        self.keys = np.full(shape, np.nan, np.float32)
        self.values = np.full((*shape[:2], block_size, head_dim), np.nan, np.float32)
        self.qkv = self.random(tokens, (group + 2) * KV_HEADS * head_dim)
        self.plain = [self._fill(row) for row in range(len(ROWS))]

    def random(self, *shape: int) -> Float32s:
        return self.numbers.standard_normal(shape, np.float32)

    def _fill(self, row: int) -> tuple[Float32s, Float32s]:
        """K and V `[kv_heads, context, head_dim]` of a row, also put into its blocks."""
        context = sum(ROWS[row])
        keys = self.random(KV_HEADS, context, self.head_dim)
        values = self.random(KV_HEADS, context, self.head_dim)
        for position in range(context):
            block = self.table[self.slots[row], position // self.block_size]
            self.keys[block, :, :, position % self.block_size] = keys[:, position]
            self.values[block, :, position % self.block_size] = values[:, position]
        return keys, values

    def attended(self, threads: int) -> Float32s:
        items, bounds = schedule(self.first, self.positions, KV_HEADS, self.group, threads)
        out = np.full((self.positions.size, self.group * KV_HEADS * self.head_dim), np.nan, "f4")
        attend(
            self.qkv,
            self.positions,
            self.first,
            self.slots,
            self.table,
            items,
            bounds,
            self.keys,
            self.values,
            self.group,
            out,
        )
        return out

    def expected(self, row: int) -> Float32s:
        keys, values = map(torch.from_numpy, self.plain[row])
        heads = self.group * KV_HEADS
        tokens = slice(self.first[row], self.first[row + 1])
        queries = self.qkv[tokens, : heads * self.head_dim].reshape(-1, heads, self.head_dim)
        later = torch.arange(keys.shape[1]) > torch.from_numpy(self.positions[tokens, None])
        rows: Float32s = (
            F.scaled_dot_product_attention(
                torch.from_numpy(queries).transpose(0, 1),
                keys.repeat_interleave(self.group, 0),
                values.repeat_interleave(self.group, 0),
                attn_mask=~later,
            )
            .transpose(0, 1)
            .flatten(1)
            .numpy()
        )
        return rows


@pytest.mark.parametrize(
    ("group", "head_dim", "block_size"),
    [
        (3, 64, 16),
        (1, 64, 16),
        (1, 8, 8),
        (4, 24, 8),
        (7, 128, 32),
        (8, 80, 16),
        (25, 16, 64),
        (2, 96, 256),
    ],
)
def test_every_row_attends_to_all_before_it_and_nothing_else(
    group: int, head_dim: int, block_size: int
) -> None:
    case = Case(group, head_dim, block_size)
    out = case.attended(threads=3)
    for row in range(len(ROWS)):
        rows = out[case.first[row] : case.first[row + 1]]
        np.testing.assert_allclose(rows, case.expected(row), atol=2e-6, err_msg=str(ROWS[row]))


def test_scores_far_apart_neither_overflow_nor_lose_the_greatest() -> None:
    case = Case(1, 16, 16)
    case.qkv *= 300
    out = case.attended(threads=1)
    for row in range(len(ROWS)):
        rows = out[case.first[row] : case.first[row + 1]]
        np.testing.assert_allclose(rows, case.expected(row), atol=1e-4, err_msg=str(ROWS[row]))


def test_nan_in_one_sequence_reaches_no_other() -> None:
    case = Case(3, 16, 16)
    spoilt = 5
    case.keys[case.table[case.slots[spoilt], 0], 0, 0, 0] = np.nan
    out = case.attended(threads=2)
    for row in range(len(ROWS)):
        rows = out[case.first[row] : case.first[row + 1]]
        if row == spoilt:
            assert np.isnan(rows[-1, :16]).all()
        else:
            np.testing.assert_allclose(rows, case.expected(row), atol=2e-6)


@pytest.mark.parametrize("threads", [1, 2, 3, 16, 1000])
def test_every_query_is_in_one_item_and_every_item_with_one_thread(threads: int) -> None:
    case, group = Case(3, 16, 16), 3
    items, bounds = schedule(case.first, case.positions, KV_HEADS, group, threads)
    assert bounds.tolist() == sorted(bounds.tolist())
    assert (bounds[0], bounds[-1], bounds.size) == (0, len(items), threads + 1)
    found = [
        (row, head, query)
        for row, head, begin in items.tolist()
        for query in range(begin, min(begin + 24, group * ROWS[row][1]))
    ]
    assert sorted(found) == [
        (row, head, query)
        for row, (_, count) in enumerate(ROWS)
        for head in range(KV_HEADS)
        for query in range(group * count)
    ]
