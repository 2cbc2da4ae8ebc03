"""What changed in the batch since the last plan, gathered while a plan is made."""

import numpy as np

from plancha.messages import Bools, Int32s
from plancha.plans import Join, Moves, Plan
from plancha.sequence import Sequence

NOTHING: Int32s = np.empty(0, np.int32)


class Deltas:
    """Slots left, sequences joined, blocks grown: all an executor needs to follow the batch."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything gathered."""
        self._left: list[int] = []
        self._joins: list[Join] = []
        self._grown_slots: list[int] = []
        self._grown_index: list[int] = []
        self._grown_blocks: list[int] = []

    @property
    def someone_left(self) -> bool:
        """Whether anybody has left the batch since the last plan."""
        return bool(self._left)

    def left(self, slot: int) -> None:
        """`slot` is empty now."""
        self._left.append(slot)

    def joined(self, sequence: Sequence, slot: int, token_ids: Int32s) -> None:
        """`sequence`, of which `token_ids` are known, holds `slot` and the blocks of its table."""
        self._joins.append(
            Join(
                slot=slot,
                stream=sequence.stream,
                token_ids=token_ids,
                prompt_tokens=sequence.prompt_tokens,
                stop_ids=sequence.stop_ids,
                seed=sequence.seed,
                sampling=sequence.request.sampling,
                logprobs=sequence.request.logprobs,
                prompt_logprobs=sequence.request.prompt_logprobs,
                grammar=sequence.request.grammar,
                namespace=sequence.request.namespace,
            )
        )
        self.grew(slot, 0, sequence.blocks)

    def grew(self, slot: int, index: int, blocks: list[int]) -> None:
        """The table of `slot` goes on with `blocks` from entry `index`."""
        self._grown_slots += [slot] * len(blocks)
        self._grown_index += range(index, index + len(blocks))
        self._grown_blocks += blocks

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
        plan = Plan(
            number=number,
            moves=moves,
            left=_column(self._left),
            joins=tuple(self._joins),
            grown_slots=_column(self._grown_slots),
            grown_index=_column(self._grown_index),
            grown_blocks=_column(self._grown_blocks),
            slots=slots,
            starts=starts,
            counts=counts,
            samples=samples,
        )
        self.clear()
        return plan


def _column(numbers: list[int]) -> Int32s:
    return np.array(numbers, np.int32) if numbers else NOTHING
