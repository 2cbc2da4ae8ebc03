"""Plans by hand: what an executor is given, without scheduler, allocator and planner."""

from collections.abc import Iterable, Sequence

import attrs
import numpy as np

from plancha.plans import (
    NO_MOVES,
    Join,
    Plan,
    StepDone,
)
from plancha.sampling import Sampling

GREEDY = Sampling(temperature=0)


@attrs.define(eq=False)
class _Slot:
    token_ids: list[int]
    computed: int = 0
    blocks: list[int] = attrs.field(factory=list)


class PlanWriter:
    """Say who joins, leaves and computes; `plan` says it to the executor; `take` its answer back.

    Blocks are handed out in a shuffled order, so nothing works because neighbours happen to be
    neighbours. `token_ids` of a slot are those it joined with and those drawn since.
    """

    def __init__(self, blocks: int, block_size: int) -> None:
        self._block_size = block_size
        self._free = np.random.default_rng(blocks).permutation(blocks).tolist()
        self._slots: dict[int, _Slot] = {}
        self._number = 0
        self._forget()

    def token_ids(self, slot: int) -> list[int]:
        """What the slot's sequence consists of so far."""
        return self._slots[slot].token_ids

    def blocks(self, slot: int) -> list[int]:
        """The slot's block table."""
        return self._slots[slot].blocks

    def join(
        self,
        slot: int,
        token_ids: Iterable[int],
        *,
        prompt_tokens: int | None = None,
        sampling: Sampling = GREEDY,
        seed: int = 0,
        stop_ids: tuple[int, ...] = (),
        logprobs: int | None = None,
        prompt_logprobs: bool = False,
        grammar: str | None = None,
    ) -> None:
        """A sequence enters `slot`; its prompt ends at `prompt_tokens`, or where it ends itself."""
        self._slots[slot] = _Slot(list(token_ids))
        ids = np.array(self._slots[slot].token_ids, np.int32)
        prompt = ids.size if prompt_tokens is None else prompt_tokens
        self._joins.append(
            Join(
                slot=slot,
                stream=slot,
                token_ids=ids,
                prompt_tokens=prompt,
                stop_ids=stop_ids,
                seed=seed,
                sampling=sampling,
                logprobs=logprobs,
                prompt_logprobs=prompt_logprobs,
                grammar=grammar,
            )
        )

    def leave(self, slot: int) -> None:
        """The sequence goes; its blocks are the next to be handed out."""
        self._free.extend(self._slots.pop(slot).blocks)
        self._left.append(slot)

    def compute(self, slot: int, count: int | None = None) -> None:
        """A row of the next `count` tokens, or of all that are known and not computed."""
        state = self._slots[slot]
        known = len(state.token_ids)
        count = known - state.computed if count is None else min(count, known - state.computed)
        end = state.computed + count
        while len(state.blocks) * self._block_size < end:
            self._grown.append((slot, len(state.blocks), self._free[-1]))
            state.blocks.append(self._free.pop())
        self._rows.append((slot, state.computed, count, end == known))
        state.computed = end

    def compute_all(self, count: int | None = None) -> None:
        """A row for everyone who is there."""
        for slot in self._slots:
            self.compute(slot, count)

    def plan(self) -> Plan:
        """Everything said since the last one."""
        grown = np.array(self._grown, np.int32).reshape(-1, 3)
        rows = np.array(self._rows, np.int32).reshape(-1, 4)
        plan = Plan(
            number=self._number,
            moves=NO_MOVES,
            left=np.array(self._left, np.int32),
            joins=tuple(self._joins),
            grown_slots=grown[:, 0],
            grown_index=grown[:, 1],
            grown_blocks=grown[:, 2],
            slots=rows[:, 0],
            starts=rows[:, 1],
            counts=rows[:, 2],
            samples=rows[:, 3] != 0,
        )
        self._number += 1
        self._forget()
        return plan

    def take(self, done: StepDone) -> None:
        """Append the tokens a step drew."""
        for slot, token in zip(done.slots.tolist(), done.tokens.tolist(), strict=True):
            self._slots[slot].token_ids.append(token)

    def _forget(self) -> None:
        self._left: list[int] = []
        self._joins: list[Join] = []
        self._grown: list[Sequence[int]] = []
        self._rows: list[Sequence[int]] = []
