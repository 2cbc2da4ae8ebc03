"""What the next step computes: memory, batch and order, as plain synchronous code.

The planner owns the batch and does the accounting; scheduler and allocator plugins only order and
count. One step is in flight at a time: `plan`, then `apply` or `fail` with its outcome; `add`,
`cancel` and `truncate` may come at any moment between.
"""

from collections import Counter
from collections.abc import Collection

import numpy as np
import structlog

from plancha.contracts import Allocator, Scheduler, Site
from plancha.failure import Failure, engine_error
from plancha.messages import Finished, FinishReason, Load
from plancha.metrics.meters import Meters
from plancha.overload.deadlines import Deadlines
from plancha.overload.overload import Overload
from plancha.planning.batch import Batch
from plancha.planning.deltas import Deltas
from plancha.planning.joining import Joining
from plancha.planning.report import Report
from plancha.planning.room import Room
from plancha.planning.rows import Rows
from plancha.planning.siblings import Siblings
from plancha.planning.step_cost import StepCost
from plancha.plans import Plan, StepDone
from plancha.sequence import Sequence
from plancha.traces.standing import Standing
from plancha.traces.traces import Traces

log = structlog.get_logger()


class Planner:
    """Decides every step. Not thread-safe: the scheduling task alone calls it.

    `report` gathers what gateways must hear; the scheduling task takes frames from it.
    """

    def __init__(self, site: Site, scheduler: Scheduler, allocator: Allocator) -> None:
        if site.max_batched_tokens < site.max_sequences + site.block_size:
            raise ValueError(
                f"max_batched_tokens is {site.max_batched_tokens}; it must be at least "
                f"max_sequences + block_size = {site.max_sequences + site.block_size}"
            )
        geometry = site.loaded()
        self.batch = Batch(site.max_sequences, geometry.context_length, geometry.vocabulary)
        self.report = Report()
        self.cost = StepCost()
        self.meters = Meters()
        self.sequences: dict[int, Sequence] = {}  # by stream: everyone accepted and not ended
        self._site = site
        self._scheduler = scheduler
        self._allocator = allocator
        self._deltas = Deltas()
        self.room = Room(
            site=site,
            batch=self.batch,
            scheduler=scheduler,
            allocator=allocator,
            deltas=self._deltas,
            cost=self.cost,
        )
        self.overload = Overload.of_worker(site, self.batch, self.room, self.cost)
        self.deadlines = Deadlines(
            site=site, alive=self.sequences, retry_after_s=self.overload.shedding.retry_after_s
        )
        self.joining = Joining(
            site=site,
            batch=self.batch,
            scheduler=scheduler,
            allocator=allocator,
            deltas=self._deltas,
            report=self.report,
            room=self.room,
            overload=self.overload,
            meters=self.meters,
            alive=self.sequences,
        )
        self._rows = Rows(site=site, batch=self.batch, joining=self.joining, cost=self.cost)
        self.standing = Standing(site, self.batch, scheduler)
        self.traces = Traces()
        self._siblings = Siblings(batch=self.batch, alive=self.sequences.get)
        self._pausing: list[Sequence] = []  # since the last plan
        self._paused: dict[int, Sequence] = {}  # out of the batch and of the line, by stream
        self._steps = 0
        self._in_flight: Plan | None = None
        self._planned_s = 0.0

    @property
    def in_flight(self) -> bool:
        """Whether a plan's outcome is still to come."""
        return self._in_flight is not None

    @property
    def preemptions(self) -> int:
        """So far, of both kinds."""
        return self.room.preemptions.total()

    def waiting_sequences(self) -> int:
        """Sequences that want into the batch, preempted ones included, paused ones not."""
        return len(self.sequences) - self.batch.occupied - len(self._paused)

    def waiting_by_tenant(self) -> Counter[str]:
        """The same, of those that have any."""
        waiting = Counter(self.overload.backlog.accepted_by_tenant)
        waiting.subtract(self.batch.running_by_tenant())
        waiting.subtract(each.tenant for each in self._paused.values())
        return +waiting

    @property
    def paused_sequences(self) -> int:
        """Sequences out of the batch and out of the line, since their readers lag."""
        return len(self._paused)

    def step_age_s(self, now: float) -> float:
        """How long ago the step in flight was planned; 0 without one."""
        return now - self._planned_s if self.in_flight else 0.0

    def load(self) -> Load:
        """How full the worker is."""
        batch, stats = self.batch, self._allocator.stats()
        unknown = int((batch.capacity - batch.length).sum())
        reserved = stats.used * self._site.block_size
        return Load(
            total_blocks=stats.total,
            free_blocks=stats.free,
            running=batch.occupied,
            waiting=self.waiting_sequences(),
            cached_blocks=stats.cached,
            waste=unknown / reserved if reserved else 0.0,
            steps=self._steps - self.in_flight,
        )

    def add(self, sequence: Sequence, now: float) -> None:
        """Take in an accepted sequence. A scheduler that raises fails this sequence alone.

        A prompt's outputs after the first wait until the prompt is computed, to share its blocks.
        """
        self.sequences[sequence.stream] = sequence
        self.deadlines.watch(sequence)
        self.traces.add(sequence)
        if self._siblings.hold(sequence):
            sequence.trace.waits("sibling", now)
        else:
            self._line_up(sequence, now)

    def cancel(self, stream: int, now: float) -> None:
        """End a stream wherever it is. Unknown, or already ended: nothing to do."""
        sequence = self.sequences.get(stream)
        if sequence is not None:
            self._end(sequence, "cancelled", now)

    def truncate(self, stream: int, keep: int, now: float) -> None:
        """End a stream at its first `keep` output tokens. Unknown: nothing to do."""
        sequence = self.sequences.get(stream)
        if sequence is not None:
            self._end(sequence, "stop", now, keep=keep)

    def expire(self, now: float) -> None:
        """End whoever has waited, or run, for longer than it may. O(1) while nobody has."""
        for sequence, failure in self.deadlines.passed(now):
            self._end(sequence, "error", now, failure=failure)

    def shed(self, tiers: Collection[int], now: float) -> None:
        """End whoever of these tiers has not begun."""
        for stream in list(self.sequences):
            sequence = self.sequences.get(stream)
            if sequence and sequence.tier in tiers and not sequence.begun:
                failure = self.overload.shedding.shed(sequence.tier, now)
                self._end(sequence, "error", now, failure=failure)

    def pause(self, stream: int) -> None:
        """Its reader lags: from the next plan on it does not run. Twice is once.

        It keeps its blocks until somebody needs them, and that is no preemption.
        """
        sequence = self.sequences.get(stream)
        if sequence is not None and not sequence.paused:
            sequence.paused = True
            self._pausing.append(sequence)

    def resume(self, stream: int, now: float) -> None:
        """Its reader is back. Not paused, or unknown: nothing to do."""
        sequence = self.sequences.get(stream)
        if sequence is not None and sequence.paused:
            sequence.paused = False
            if self._paused.pop(stream, None) is not None:
                self._line_up(sequence, now)
            elif sequence.slot is None:
                sequence.trace.waits(self.standing.reason(sequence), now)

    def plan(self, now: float) -> Plan | None:
        """The next step, or None when nobody can run. Raises `RuntimeError` with one in flight."""
        if self._in_flight is not None:
            raise RuntimeError("the step in flight must be applied before the next is planned")
        self.room.begin()
        self.joining.step = self._steps
        self._set_paused_aside(now)
        self.room.grow_running(now)
        slots, counts = self._rows.next(now)
        self.overload.shedding.planned(now)
        if slots.size == 0:
            return None
        starts = self.batch.computed[slots]
        ends = starts + counts
        samples = (ends == self.batch.length[slots]) & (ends < self.batch.max_length[slots])
        moves = self._allocator.take_moves()
        self._in_flight = self._deltas.plan(self._steps, moves, slots, starts, counts, samples)
        self._steps += 1
        self._planned_s = now
        return self._in_flight

    def apply(self, done: StepDone, now: float) -> None:
        """Take in a step's tokens: append, stop, charge, report; who left meanwhile has none."""
        plan = self._take_in_flight()
        self.cost.observe_step(plan, done)
        self.meters.stepped(plan, done, now - self._planned_s)
        self._commit(plan, done)
        for slot in done.failed:
            self._end_slot(slot, "error", now, failure=engine_error())
        self.report.prompts(done.prompt_logprobs, self.batch.sequences)
        self._append(plan, done, now)
        self._end_scored(plan, now)
        self._let_go(now)

    def fail(self, now: float) -> None:
        """The step in flight raised: its sequences end with an error, the others return later.

        The executor has forgotten everything, so nobody's blocks hold anything any more; of the
        host's copies those of this very plan may not have been made.
        """
        plan = self._take_in_flight()
        self.meters.failed_steps += 1
        for slot in plan.slots.tolist():
            self._end_slot(slot, "error", now, failure=engine_error())
        for sequence in self.batch.running():
            self.room.leave(sequence)
            sequence.trace.moved("preempted", now, then="engine", reason="engine", kept=False)
            self._scheduler.add(sequence, now)
        for sequence in list(self.room.aside.values()):
            self.room.leave(sequence)
        for sequence in self.room.swapped_out:
            if sequence.stream in self.sequences:
                self._allocator.release(sequence)
                sequence.computed = 0
        self._allocator.forget()
        self._deltas.clear()
        self._let_go(now)

    def _set_paused_aside(self, now: float) -> None:
        """Who waits stays in line, where nobody takes it while it is paused."""
        for sequence in self._pausing:
            if sequence.paused and sequence.stream in self.sequences:
                sequence.trace.waits("paused", now)
            if sequence.paused and sequence.slot is not None:
                self.room.set_aside(sequence)
                sequence.last_token_s = None  # the gap is its reader's
                self._paused[sequence.stream] = sequence
        self._pausing.clear()

    def _line_up(self, sequence: Sequence, now: float) -> None:
        try:
            self._scheduler.add(sequence, now)
        except Exception:
            log.exception("scheduler_add_failed", stream=sequence.stream)
            self._end(sequence, "error", now, failure=engine_error())
        else:
            sequence.trace.waits(self.standing.reason(sequence), now)

    def _unline(self, sequence: Sequence) -> None:
        try:
            self._scheduler.remove(sequence)
        except Exception:  # whoever has ended is never let in again, whatever it is kept for
            log.exception("scheduler_remove_failed", stream=sequence.stream)

    def _let_go(self, now: float) -> None:
        """Further outputs of prompts that are computed line up."""
        for sequence in self._siblings.released():
            self._line_up(sequence, now)

    def _commit(self, plan: Plan, done: StepDone) -> None:
        """What the step computed is in the pool; full blocks can be found, but of who failed."""
        batch, block_size = self.batch, self._site.block_size
        slots, starts, ends = plan.slots, plan.starts, plan.starts + plan.counts
        if self._deltas.someone_left:
            rows = batch.active[slots]
            slots, starts, ends = slots[rows], starts[rows], ends[rows]
        batch.computed[slots] = ends
        for row in np.flatnonzero(ends // block_size > starts // block_size).tolist():
            slot = int(slots[row])
            sequence = batch.sequences[slot]
            if sequence is not None and slot not in done.failed:
                self._allocator.commit(sequence, int(ends[row]))

    def _append(self, plan: Plan, done: StepDone, now: float) -> None:
        batch = self.batch
        slots, tokens, logprobs = done.slots, done.tokens, done.logprobs
        if self._deltas.someone_left:
            alive = batch.active[slots]
            slots, tokens = slots[alive], tokens[alive]
            logprobs = None if logprobs is None else logprobs.rows(alive)
        length = batch.append(slots, tokens)
        self.report.tokens(batch.stream[slots], tokens, logprobs)
        output = batch.output_by_tenant(slots)
        self._scheduler.charge(output)
        self.overload.quotas.charge(output, now)
        self.meters.appended(plan, slots, output, batch, now)
        full = length >= batch.max_length[slots]
        for i in np.flatnonzero(full | (batch.stops[tokens] > 0)).tolist():
            slot = int(slots[i])
            stopped = self._is_stopped(slot, int(tokens[i]), int(length[i]))
            if stopped or full[i]:
                self._end_slot(slot, "stop" if stopped else "length", now, hidden=stopped)

    def _is_stopped(self, slot: int, token: int, length: int) -> bool:
        sequence = self.batch.sequences[slot]
        if sequence is None or token not in sequence.stop_ids:
            return False
        return length - sequence.prompt_tokens > sequence.request.sampling.min_tokens

    def _end_scored(self, plan: Plan, now: float) -> None:
        """max_tokens 0: the prompt was all there was to compute."""
        batch = self.batch
        for slot in plan.slots[~plan.samples].tolist():
            whole = batch.active[slot] and batch.computed[slot] == batch.length[slot]
            if whole and batch.length[slot] >= batch.max_length[slot]:
                self._end_slot(slot, "length", now)

    def _end_slot(
        self,
        slot: int,
        reason: FinishReason,
        now: float,
        *,
        hidden: bool = False,
        failure: Failure | None = None,
    ) -> None:
        sequence = self.batch.sequences[slot]
        if sequence is not None:
            self._end(sequence, reason, now, hidden=hidden, failure=failure)

    def _end(
        self,
        sequence: Sequence,
        reason: FinishReason,
        now: float,
        *,
        keep: int | None = None,
        hidden: bool = False,
        failure: Failure | None = None,
    ) -> None:
        in_flight = self._prefilled_in_flight(sequence)
        self.room.leave(sequence)
        self.meters.left_in_flight(sequence, in_flight)
        sequence.prefilled = max(sequence.prefilled, in_flight)
        self._paused.pop(sequence.stream, None)
        del self.sequences[sequence.stream]
        self.traces.ended(sequence, reason, failure, now)
        self.overload.ended(sequence, now)
        self.meters.ended_by(sequence, reason, failure, now)
        self._unline(sequence)
        self._siblings.forget(sequence)
        first = sequence.parent is None
        output = sequence.length - sequence.prompt_tokens
        self.report.finished(
            Finished(
                sequence.stream,
                reason,
                prompt_tokens=sequence.prefilled if first else 0,
                output_tokens=output if keep is None else min(keep, output),
                hidden=hidden,
                failure=failure,
                phases=sequence.phases(now),
            )
        )
        if self._siblings.waits_for(sequence.stream) and not self.in_flight:
            self._let_go(now)

    def _prefilled_in_flight(self, sequence: Sequence) -> int:
        """Prompt tokens computed when the step in flight ends, for one that leaves before that.

        Its token comes to nobody, but what it makes of the prompt was asked for and is computed.
        """
        plan = self._in_flight
        if plan is None or sequence.slot is None or sequence.prefilled >= sequence.prompt_tokens:
            return 0
        rows = np.flatnonzero(plan.slots == sequence.slot)
        end = int((plan.starts + plan.counts)[rows].max(initial=0))
        return min(end, sequence.prompt_tokens)

    def _take_in_flight(self) -> Plan:
        plan, self._in_flight = self._in_flight, None
        if plan is None:
            raise RuntimeError("no step is in flight")
        return plan
