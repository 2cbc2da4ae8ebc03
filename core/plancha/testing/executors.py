"""Executors without a model: everything else of the server is real, and each token is foretold."""

from collections.abc import Callable, Iterable, Sequence

import attrs
import numpy as np

from plancha.contracts import Geometry, Progress
from plancha.messages import (
    Int32s,
    Int64s,
    Logprobs,
    PromptLogprobs,
)
from plancha.plans import Plan, StepDone
from plancha.testing.slots import Slot, Slots

POISON = -(2**40)
"""What a KV slot holds before anything was written: a stale or foreign read changes the chain."""

Script = Callable[[tuple[int, ...]], Sequence[int]]


@attrs.define(eq=False)
class ScriptExecutor:
    """Emits what `script` says for a prompt's ids, whatever the sampler would; then its last id.

    `failing` maps (stream, output index) pairs to sequences that fail there alone.
    """

    script: Script
    geometry: Geometry
    block_size: int = 16
    failing: frozenset[tuple[int, int]] = frozenset()
    _slots: Slots = attrs.field(factory=Slots, init=False)

    def load(self, progress: Progress) -> Geometry:
        """The geometry this was made with."""
        return self.geometry

    def step(self, plan: Plan) -> StepDone:
        """One scripted id for every row that samples."""
        self._slots.follow(plan)
        self._slots.check_rows(plan, self.block_size)
        return draw(plan, self._slots, self._next, self._fails)

    def reset(self) -> None:
        """Forget every slot."""
        self._slots = Slots()

    def close(self) -> None:
        """Nothing to release."""

    def _next(self, slot: Slot) -> int:
        prompt = slot.join.prompt_tokens
        script = self.script(tuple(slot.token_ids[:prompt]))
        done = len(slot.token_ids) - prompt
        return script[min(done, len(script) - 1)]

    def _fails(self, slot: Slot) -> bool:
        return (slot.join.stream, len(slot.token_ids) - slot.join.prompt_tokens) in self.failing


@attrs.define(eq=False)
class ChainExecutor:
    """The next id is a checksum of all ids before it, read back from the paged pool.

    id = 32 + (sum over positions i of (i + 1) * kv[i]) mod 95: a block that was lost, shifted,
    shared by mistake or left over from somebody else changes the output from there on.
    """

    geometry: Geometry
    block_size: int = 16
    pool: Int64s = attrs.field(init=False)  # [blocks, block_size]
    host: Int64s = attrs.field(init=False)  # [host_blocks, block_size]; outlives a reset
    _slots: Slots = attrs.field(factory=Slots, init=False)

    def __attrs_post_init__(self) -> None:
        self.host = np.full((self.geometry.host_blocks, self.block_size), POISON, np.int64)
        self.reset()

    def load(self, progress: Progress) -> Geometry:
        """The geometry this was made with."""
        return self.geometry

    def step(self, plan: Plan) -> StepDone:
        """Make the moves, write the rows' ids, then chain from what the pool holds."""
        moves = plan.moves
        self.host[moves.out_hosts] = self.pool[moves.out_blocks]
        self.pool[moves.copied_to] = self.pool[moves.copied_from]
        self.pool[moves.in_blocks] = self.host[moves.in_hosts]
        self._slots.follow(plan)
        self._slots.check_rows(plan, self.block_size)
        for number, start, count in zip(plan.slots, plan.starts, plan.counts, strict=True):
            slot = self._slots.by_slot[int(number)]
            for position in range(start, start + count):
                block = slot.blocks[position // self.block_size]
                self.pool[block, position % self.block_size] = slot.token_ids[position]
        done = draw(plan, self._slots, self._next, lambda slot: False)
        return attrs.evolve(
            done, logprobs=foretold(done.tokens), prompt_logprobs=self._prompt_logprobs(plan)
        )

    def reset(self) -> None:
        """Forget every slot, poison the pool."""
        self._slots = Slots()
        self.pool = np.full((self.geometry.blocks, self.block_size), POISON, np.int64)

    def close(self) -> None:
        """Nothing to release."""

    def _prompt_logprobs(self, plan: Plan) -> tuple[PromptLogprobs, ...]:
        parts = []
        for number, start, count in zip(plan.slots, plan.starts, plan.counts, strict=True):
            slot = self._slots.by_slot[int(number)]
            end = min(int(start + count), slot.join.prompt_tokens - 1)
            if slot.join.prompt_logprobs and start < end:
                tokens = np.array(slot.token_ids[start + 1 : end + 1], np.int32)
                parts.append(PromptLogprobs(int(number), int(start) + 1, foretold(tokens)))
        return tuple(parts)

    def _next(self, slot: Slot) -> int:
        kv = self.pool[slot.blocks].reshape(-1)[: len(slot.token_ids)]
        return chain_id(kv.tolist())


def draw(
    plan: Plan, slots: Slots, next_id: Callable[[Slot], int], fails: Callable[[Slot], bool]
) -> StepDone:
    """A step's outcome: `next_id` for every row that samples, appended to its slot's ids."""
    drawn: dict[int, int] = {}
    failed: list[int] = []
    for number in plan.slots[plan.samples].tolist():
        slot = slots.by_slot[number]
        if fails(slot):
            failed.append(number)
            continue
        token = next_id(slot)
        slot.token_ids.append(token)
        drawn[number] = token
    return StepDone(plan.number, _column(drawn.keys()), _column(drawn.values()), tuple(failed))


def foretold(tokens: Int32s) -> Logprobs:
    """The scripted log-probability of id t is -t / 64; the alternatives are t and t + 1."""
    chosen = (-tokens / 64).astype(np.float32)
    return Logprobs(
        chosen,
        np.stack([tokens, tokens + 1], axis=1).astype(np.int32),
        np.stack([chosen, chosen - 1 / 64], axis=1).astype(np.float32),
    )


def chain_id(kv: Sequence[int]) -> int:
    """The chain's next id after `kv`, the ids of all positions so far."""
    return 32 + sum((i + 1) * token for i, token in enumerate(kv)) % 95


def chain(prompt: Sequence[int], tokens: int) -> list[int]:
    """What an undisturbed chain generates after `prompt`."""
    ids = list(prompt)
    for _ in range(tokens):
        ids.append(chain_id(ids))
    return ids[len(prompt) :]


def _column(values: Iterable[int]) -> Int32s:
    return np.fromiter(values, np.int32)
