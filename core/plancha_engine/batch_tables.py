"""What the executor knows of every slot, built from the plans' deltas alone."""

import attrs
import numpy as np
import numpy.typing as npt

from plancha.messages import Int32s, Int64s
from plancha.plans import Plan


@attrs.frozen(eq=False)
class Batch:
    """One ragged step: the tokens of all rows end to end, and where their K and V belong.

    Row r computes tokens `first[r]` to `first[r + 1] - 1` of the flat columns; they are
    consecutive positions of one sequence, which attends to everything before it through
    `block_table[slots[r]]`.
    """

    tokens: Int32s  # [tokens] ids
    positions: Int32s  # [tokens] within their sequences
    blocks: Int32s  # [tokens] where each one's K and V go: the block,
    offsets: Int32s  # [tokens] and the place in it
    first: Int32s  # [rows + 1]
    slots: Int32s  # [rows]
    block_table: Int32s  # [max_sequences, most blocks of a sequence], of all slots
    sampled: Int64s  # [sampled rows] flat index of the tokens whose logits are wanted


class BatchTables:
    """Token ids and block table of every slot. Only plans, and the tokens they drew, change them.

    `token_ids` is int32 [max_sequences, context_length + 1]; `block_table` is int32
    [max_sequences, blocks of a whole context].
    """

    def __init__(self, max_sequences: int, context_length: int, block_size: int) -> None:
        self.token_ids: Int32s = np.zeros((max_sequences, context_length + 1), np.int32)
        self.block_table: Int32s = np.zeros(
            (max_sequences, -(-context_length // block_size)), np.int32
        )
        self._block_size = block_size

    def apply(self, plan: Plan) -> None:
        """Follow the plan's joins and grown blocks."""
        for join in plan.joins:
            self.token_ids[join.slot, : join.token_ids.size] = join.token_ids
        self.block_table[plan.grown_slots, plan.grown_index] = plan.grown_blocks

    def batch(self, plan: Plan) -> Batch:
        """The plan's rows, flattened."""
        first = np.zeros(plan.slots.size + 1, np.int32)
        np.cumsum(plan.counts, out=first[1:])
        slots = np.repeat(plan.slots, plan.counts)
        within = np.arange(first[-1], dtype=np.int32) - np.repeat(first[:-1], plan.counts)
        positions = np.repeat(plan.starts, plan.counts) + within
        index, offsets = np.divmod(positions, np.int32(self._block_size))
        return Batch(
            tokens=self.token_ids[slots, positions],
            positions=positions,
            blocks=self.block_table[slots, index],
            offsets=offsets,
            first=first,
            slots=np.ascontiguousarray(plan.slots),
            block_table=self.block_table,
            sampled=(first[1:] - 1)[plan.samples].astype(np.int64),
        )

    def store(self, slots: Int32s, positions: npt.NDArray[np.int32], tokens: Int32s) -> None:
        """`tokens[i]` is what `slots[i]` holds at `positions[i]` from now on."""
        self.token_ids[slots, positions] = tokens
