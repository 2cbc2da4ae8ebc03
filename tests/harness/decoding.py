"""A decode of a paged case, ready to be launched."""

import attrs
import numpy as np
import torch

from paged_case import PagedCase, make_paged_case, worst_error
from plancha_engine.cuda.attention_shape import AttentionShape, Cores
from plancha_engine.cuda.decode import (
    DecodeRows,
    Partials,
    decode,
    decode_items,
    make_partials,
)
from plancha_engine.cuda.launch import Launch

LENGTHS = (1, 15, 16, 17, 0, 33, 70, 131)


@attrs.frozen(eq=False)
class Decoding:
    """A launch over a case: tokens in another order than rows, queries between other columns."""

    case: PagedCase
    cores: Cores
    queries: torch.Tensor  # [tokens, heads, head_dim]
    tokens: torch.Tensor
    out: torch.Tensor  # [tokens, heads, head_dim]; NaN at first, and in tokens that are no row's
    launches: tuple[Launch, Launch]

    def worst_error(self) -> float:
        """See `paged_case.worst_error`."""
        expected = [
            self.case.attention(row, self.queries[self.tokens[row]], length)
            for row, length in enumerate(self.case.lengths)
        ]
        rounded_weights = self.cores == "tensor"
        return worst_error(self.out[self.tokens], torch.stack(expected), rounded_weights)


def make_decoding(
    shape: AttentionShape,
    cores: Cores,
    split_tokens: int,
    lengths: tuple[int, ...] = LENGTHS,
) -> Decoding:
    case = make_paged_case(shape, lengths)
    count = len(lengths)
    numbers = torch.Generator().manual_seed(count)
    tokens = torch.randperm(count + 2, generator=numbers)[:count].int()
    columns = shape.heads * shape.head_dim
    qkv = torch.full((count + 2, columns + 64), torch.nan, dtype=shape.dtype)
    qkv[tokens, :columns] = torch.randn((count, columns), generator=numbers).to(shape.dtype)
    out = torch.full((count + 2, shape.heads, shape.head_dim), torch.nan, dtype=shape.dtype)
    rows, partials = rows_and_partials(case, tokens, split_tokens)
    partials.values.fill_(torch.nan)
    partials.statistics.fill_(torch.nan)
    launches = decode(shape, out, qkv, case.keys, case.values, rows, partials, cores)
    return Decoding(case, cores, qkv[:, :columns].view(out.shape), tokens, out, launches)


def rows_and_partials(
    case: PagedCase, tokens: torch.Tensor, split_tokens: int
) -> tuple[DecodeRows, Partials]:
    """All rows of the case, and an item too many."""
    items, first_items = decode_items(np.array(case.lengths, np.int32), split_tokens)
    padded = np.concatenate((items, [[-1, 0]])).astype(np.int32)
    rows = DecodeRows(
        tokens,
        case.slots,
        torch.tensor(case.lengths, dtype=torch.int32),
        case.block_table,
        torch.from_numpy(padded),
        torch.from_numpy(first_items),
    )
    return rows, make_partials(case.shape, len(padded), split_tokens, torch.device("cpu"))
