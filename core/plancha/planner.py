"""What the next step computes: memory, batch and order, as plain synchronous code.

The planner owns the batch and does the accounting; scheduler and allocator plugins only order and
count. One step is in flight at a time: `plan`, then `apply` or `fail` with its outcome; `add`,
`cancel` and `truncate` may come at any moment between.
"""

import numpy as np
import structlog

from plancha.batch import Batch
from plancha.contracts import Allocator, Scheduler, Site
from plancha.deltas import Deltas
from plancha.failure import Failure, engine_error
from plancha.messages import Finished, FinishReason, Int32s, Load, Plan, StepDone
from plancha.report import Report
from plancha.sequence import Sequence

log = structlog.get_logger()

WATERMARK = 0.01
"""Share of the pool kept free when a sequence joins beside others, so that they can grow."""


class Planner:
    """Decides every step. Not thread-safe: the scheduling task alone calls it.

    `report` gathers what gateways must hear; the scheduling task takes frames from it.
    """

    def __init__(self, site: Site, scheduler: Scheduler, allocator: Allocator) -> None:
        geometry = site.loaded()
        if site.max_batched_tokens < site.max_sequences + site.block_size:
            raise ValueError(
                f"max_batched_tokens is {site.max_batched_tokens}; it must be at least "
                f"max_sequences + block_size = {site.max_sequences + site.block_size}"
            )
        self.batch = Batch(site.max_sequences, geometry.context_length)
        self.report = Report()
        self.sequences: dict[int, Sequence] = {}  # by stream: everyone accepted and not ended
        self.preemptions = 0
        self._scheduler = scheduler
        self._allocator = allocator
        self._block_size = site.block_size
        self._max_batched_tokens = site.max_batched_tokens
        self._watermark = int(geometry.blocks * WATERMARK)
        self._steps = 0
        self._in_flight: Plan | None = None
        self._deltas = Deltas()

    @property
    def in_flight(self) -> bool:
        """Whether a plan's outcome is still to come."""
        return self._in_flight is not None

    def waiting_sequences(self) -> int:
        """Sequences outside the batch, preempted ones included."""
        return len(self.sequences) - (len(self.batch.sequences) - self.batch.free_slots)

    def load(self) -> Load:
        """How full the worker is."""
        stats = self._allocator.stats()
        running = len(self.batch.sequences) - self.batch.free_slots
        return Load(stats.total, stats.free, running, self.waiting_sequences())

    def add(self, sequence: Sequence, now: float) -> None:
        """Take in an accepted sequence. A scheduler that raises fails this sequence alone."""
        self.sequences[sequence.stream] = sequence
        try:
            self._scheduler.add(sequence, now)
        except Exception:
            log.exception("scheduler_add_failed", stream=sequence.stream)
            self._end(sequence, "error", failure=engine_error())

    def cancel(self, stream: int) -> None:
        """End a stream wherever it is. Unknown, or already ended: nothing to do."""
        sequence = self.sequences.get(stream)
        if sequence is not None:
            self._end(sequence, "cancelled")

    def truncate(self, stream: int, keep: int) -> None:
        """End a stream at its first `keep` output tokens. Unknown: nothing to do."""
        sequence = self.sequences.get(stream)
        if sequence is not None:
            self._end(sequence, "stop", keep=keep)

    def plan(self, now: float) -> Plan | None:
        """The next step, or None when nobody can run. Raises `RuntimeError` with one in flight."""
        if self._in_flight is not None:
            raise RuntimeError("the step in flight must be applied before the next is planned")
        self._grow(now)
        slots, counts = self._rows(now)
        if slots.size == 0:
            return None
        starts = self.batch.computed[slots]
        lengths = self.batch.length[slots]
        samples = (starts + counts == lengths) & (lengths < self.batch.max_length[slots])
        self._in_flight = self._deltas.plan(self._steps, slots, starts, counts, samples)
        self._steps += 1
        self._deltas = Deltas()
        return self._in_flight

    def apply(self, done: StepDone) -> None:
        """Take in a step's tokens: append, stop, charge, report; who left meanwhile has none."""
        plan = self._take_in_flight()
        batch = self.batch
        rows = batch.active[plan.slots]
        slots = plan.slots[rows]
        batch.computed[slots] += plan.counts[rows]
        for slot in done.failed:
            self._end_slot(slot, "error", failure=engine_error())
        alive = batch.active[done.slots]
        self._append(done.slots[alive], done.tokens[alive])
        scored = slots[batch.active[slots] & (batch.length[slots] >= batch.max_length[slots])]
        for slot in scored.tolist():  # max_tokens 0: the prompt was all there was to compute
            if batch.computed[slot] == batch.length[slot]:
                self._end_slot(slot, "length")

    def fail(self, now: float) -> None:
        """The step in flight raised: its sequences end with an error, the others return later.

        The executor has forgotten everything, so nobody's blocks hold anything any more.
        """
        plan = self._take_in_flight()
        for slot in plan.slots.tolist():
            self._end_slot(slot, "error", failure=engine_error())
        for sequence in self.batch.running():
            self._preempt(sequence, now)
        self._deltas = Deltas()

    def _append(self, slots: Int32s, tokens: Int32s) -> None:
        batch = self.batch
        batch.append(slots, tokens)
        self.report.tokens(batch.stream[slots], tokens)
        self._scheduler.charge(batch.output_by_tenant(slots))
        length = batch.length[slots]
        stopped = (batch.stop_ids[slots] == tokens[:, None]).any(axis=1)
        stopped &= length >= batch.stops_from[slots]
        full = length >= batch.max_length[slots]
        for i in np.flatnonzero(stopped | full).tolist():
            reason: FinishReason = "stop" if stopped[i] else "length"
            self._end_slot(int(slots[i]), reason, hidden=bool(stopped[i]))

    def _grow(self, now: float) -> None:
        """Make room for every running sequence's next token, oldest first, by force if need be."""
        batch = self.batch
        short = np.flatnonzero(batch.active & (batch.length > batch.capacity))
        grown: set[int] = set()  # streams; a plan's own growth is never taken back in it
        for slot in short[np.argsort(batch.arrival[short])].tolist():
            sequence = batch.sequences[slot]
            if sequence is None:
                continue  # a victim of one before it
            if self._grow_one(sequence, slot, grown, now):
                grown.add(sequence.stream)
            else:
                self._preempt(sequence, now)

    def _grow_one(self, sequence: Sequence, slot: int, grown: set[int], now: float) -> bool:
        tokens = int(self.batch.length[slot])
        short = self._allocator.need(tokens, sequence) - self._allocator.stats().free
        if short > 0:
            victims = self._victims(sequence, short, grown)
            if victims is None:
                return False
            for victim in victims:
                self._preempt(victim, now)
        held = len(sequence.blocks)
        if not self._allocator.grow(sequence, tokens):
            raise RuntimeError(f"the allocator refused blocks it had: stream {sequence.stream}")
        self._deltas.grew(slot, held, sequence.blocks[held:])
        self.batch.capacity[slot] = len(sequence.blocks) * self._block_size
        return True

    def _victims(self, for_: Sequence, blocks: int, grown: set[int]) -> list[Sequence] | None:
        """Who has to go so that `blocks` come free; None when all the candidates would not do.

        The sequence that came first is never among them, so something always finishes.
        """
        running = self.batch.running()
        leader = min(running, key=lambda sequence: sequence.arrival)
        victims: list[Sequence] = []
        for victim in self._scheduler.victims(running, for_):
            if victim is leader or victim is for_ or victim.stream in grown:
                continue
            victims.append(victim)
            if self._allocator.freeable(victims) >= blocks:
                return victims
        return None

    def _rows(self, now: float) -> tuple[Int32s, Int32s]:
        """Slots and their token counts: decodes first, then prefill chunks, then who joins."""
        batch = self.batch
        running = np.flatnonzero(batch.active)
        pending = batch.length[running] - batch.computed[running]
        decoding = running[pending == 1]
        prefilling = running[pending > 1]
        slots, counts = decoding.tolist(), [1] * len(decoding)
        budget = self._max_batched_tokens - len(slots)
        for slot in prefilling[np.argsort(batch.arrival[prefilling])].tolist():
            chunk = min(budget, int(batch.length[slot] - batch.computed[slot]))
            if chunk > 0:
                slots.append(slot)
                counts.append(chunk)
                budget -= chunk
        while budget > 0:
            joined = self._join_next(now)
            if joined is None:
                break
            chunk = min(budget, int(batch.length[joined]))
            slots.append(joined)
            counts.append(chunk)
            budget -= chunk
        return np.array(slots, np.int32), np.array(counts, np.int32)

    def _join_next(self, now: float) -> int | None:
        """Let the next in line into the batch, with blocks for all it already knows."""
        candidate = next(self._scheduler.waiting(now), None)
        if candidate is None or self.batch.free_slots == 0:
            return None
        beside_others = self.batch.free_slots < len(self.batch.sequences)
        spare = self._watermark if beside_others else 0
        allocator = self._allocator
        if allocator.need(candidate.tokens, candidate) + spare > allocator.stats().free:
            return None
        if not allocator.grow(candidate, candidate.tokens):
            raise RuntimeError(f"the allocator refused blocks it had: stream {candidate.stream}")
        slot = self.batch.join(candidate, len(candidate.blocks) * self._block_size)
        self._scheduler.joined(candidate, 0)
        self._deltas.joined(candidate, slot)
        if candidate.preemptions == 0:
            self.report.joined(candidate.stream)
        return slot

    def _preempt(self, sequence: Sequence, now: float) -> None:
        """By recompute: its blocks go, and it waits for its turn again."""
        self._leave(sequence)
        sequence.preemptions += 1
        self.preemptions += 1
        self._scheduler.add(sequence, now)

    def _leave(self, sequence: Sequence) -> None:
        slot = self.batch.leave(sequence)
        self._allocator.release(sequence)
        self._deltas.left(slot)

    def _end_slot(
        self,
        slot: int,
        reason: FinishReason,
        *,
        hidden: bool = False,
        failure: Failure | None = None,
    ) -> None:
        sequence = self.batch.sequences[slot]
        if sequence is not None:
            self._end(sequence, reason, hidden=hidden, failure=failure)

    def _end(
        self,
        sequence: Sequence,
        reason: FinishReason,
        *,
        keep: int | None = None,
        hidden: bool = False,
        failure: Failure | None = None,
    ) -> None:
        if sequence.slot is not None:
            self._leave(sequence)
        del self.sequences[sequence.stream]
        self._scheduler.remove(sequence)
        output = sequence.tokens - sequence.prompt_tokens
        self.report.finished(
            Finished(
                sequence.stream,
                reason,
                prompt_tokens=sequence.prefilled,
                output_tokens=output if keep is None else min(keep, output),
                hidden=hidden,
                failure=failure,
            )
        )

    def _take_in_flight(self) -> Plan:
        plan, self._in_flight = self._in_flight, None
        if plan is None:
            raise RuntimeError("no step is in flight")
        return plan
