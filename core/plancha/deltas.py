"""What changed in the batch since the last plan, gathered while a plan is made."""

from itertools import chain

import numpy as np

from plancha.messages import Bools, Int32s, Join, Moves, Plan
from plancha.sequence import Sequence


class Deltas:
    """Slots left, sequences joined, blocks grown: all an executor needs to follow the batch."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything gathered."""
        self._left: list[int] = []
        self._joins: list[Join] = []
        self._grown: list[tuple[int, int, list[int]]] = []

    def left(self, slot: int) -> None:
        """`slot` is empty now."""
        self._left.append(slot)

    def joined(self, sequence: Sequence, slot: int) -> None:
        """`sequence` holds `slot` and the blocks of its table."""
        self._joins.append(
            Join(
                slot=slot,
                stream=sequence.stream,
                token_ids=sequence.token_ids[: sequence.length].copy(),
                prompt_tokens=sequence.prompt_tokens,
                stop_ids=sequence.stop_ids,
                seed=sequence.seed,
                sampling=sequence.request.sampling,
                logprobs=sequence.request.logprobs,
                prompt_logprobs=sequence.request.prompt_logprobs,
            )
        )
        self.grew(slot, 0, sequence.blocks)

    def grew(self, slot: int, index: int, blocks: list[int]) -> None:
        """The table of `slot` goes on with `blocks` from entry `index`."""
        self._grown.append((slot, index, blocks.copy()))

    def plan(
        self,
        number: int,
        moves: Moves,
        slots: Int32s,
        starts: Int32s,
        counts: Int32s,
        samples: Bools,
    ) -> Plan:
        """The plan of these rows on top of what was gathered, which is forgotten."""
        grown_slots, grown_index, grown_blocks = self._columns()
        plan = Plan(
            number=number,
            moves=moves,
            left=np.array(self._left, np.int32),
            joins=tuple(self._joins),
            grown_slots=grown_slots,
            grown_index=grown_index,
            grown_blocks=grown_blocks,
            slots=slots,
            starts=starts,
            counts=counts,
            samples=samples,
        )
        self.clear()
        return plan

    def _columns(self) -> tuple[Int32s, Int32s, Int32s]:
        """Slot, index and block of every table entry that was grown."""
        lengths = [len(blocks) for _, _, blocks in self._grown]
        blocks = np.fromiter(chain.from_iterable(blocks for *_, blocks in self._grown), np.int32)
        heads = np.array([(slot, index) for slot, index, _ in self._grown], np.int32).reshape(-1, 2)
        slots, index = np.repeat(heads, lengths, axis=0).T
        ends = np.cumsum(lengths, dtype=np.int32)
        within = np.arange(blocks.size, dtype=np.int32) - np.repeat(ends - lengths, lengths)
        return slots, (index + within).astype(np.int32), blocks
