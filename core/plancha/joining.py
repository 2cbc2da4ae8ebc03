"""Who joins the batch: the scheduler's order, bent only as far as memory and limits make it."""

from itertools import islice

import attrs

from plancha.batch import Batch
from plancha.contracts import Allocator, Scheduler, Site
from plancha.deltas import Deltas
from plancha.report import Report
from plancha.room import Room
from plancha.sequence import Sequence

WATERMARK = 0.01
"""Share of the pool kept free when a sequence joins beside others, so that they can grow."""

MOST_PASSES = 16
LONGEST_PASSED_S = 2.0
"""A sequence that does not fit may be passed so often, or for so long; then it is waited for."""

LOOKAHEAD = 64
"""Candidates looked at in one go."""


@attrs.define(kw_only=True, eq=False)
class Joining:
    """Takes the next of the line into the batch, with blocks for all it already knows."""

    site: Site
    batch: Batch
    scheduler: Scheduler
    allocator: Allocator
    deltas: Deltas
    report: Report
    room: Room

    def peek(self, now: float) -> Sequence | None:
        """The first of the line."""
        return next(iter(self.scheduler.waiting(now)), None)

    def next(self, now: float) -> Sequence | None:
        """Whoever joined, or None when nobody can.

        A candidate held back by its tenant's limit is skipped; one that does not fit may be passed
        a bounded number of times.
        """
        passed: list[Sequence] = []
        for candidate in islice(self.scheduler.waiting(now), LOOKAHEAD):
            if self._limited(candidate):
                continue
            if self._fits(candidate, now):
                self._join(candidate)
                for each in passed:
                    each.passed += 1
                return candidate
            if self.batch.free_slots == 0 or candidate.preemptions:
                return None  # nobody passes who has been in the batch before
            if candidate.passed_since_s is None:
                candidate.passed_since_s = now
            waited_s = now - candidate.passed_since_s
            if candidate.passed >= MOST_PASSES or waited_s >= LONGEST_PASSED_S:
                return None
            passed.append(candidate)
        return None

    def _limited(self, candidate: Sequence) -> bool:
        limit = self.site.tenant(candidate.tenant).max_running
        return limit is not None and self.batch.running_of(candidate.tenant) >= limit

    def _fits(self, candidate: Sequence, now: float) -> bool:
        """Whether it holds its blocks now; if not, it holds none."""
        if candidate.host_blocks:
            return self._has_room(candidate, now) and self.allocator.restore(candidate)
        parent = candidate.parent
        if parent is not None and self._can_fork(parent, candidate):
            if self._has_slot(candidate, now) and self.allocator.fork(parent, candidate):
                candidate.computed = candidate.prompt_tokens - 1
                return True
        if not candidate.request.prompt_logprobs:
            candidate.computed = self.allocator.reuse(candidate)
        if self._has_room(candidate, now):
            return True
        self.allocator.release(candidate)
        candidate.computed = 0
        return False

    def _can_fork(self, parent: Sequence, candidate: Sequence) -> bool:
        """Before it has tokens of its own, and while the parent's blocks hold the whole prompt."""
        if candidate.joined_once or parent.slot is None:
            return False
        return bool(self.batch.computed[parent.slot] >= parent.prompt_tokens)

    def _has_slot(self, candidate: Sequence, now: float) -> bool:
        return self.room.clear_for(candidate, 0, now)

    def _has_room(self, candidate: Sequence, now: float) -> bool:
        beside_others = self.batch.free_slots < len(self.batch.sequences)
        spare = int(self.site.loaded().blocks * WATERMARK) if beside_others else 0
        need = self.allocator.need(candidate.length, candidate) + spare
        short = need - self.allocator.stats().available
        return self.room.clear_for(candidate, short, now)

    def _join(self, candidate: Sequence) -> None:
        if not self.allocator.grow(candidate, candidate.length):
            raise RuntimeError(f"the allocator refused blocks it had: stream {candidate.stream}")
        capacity = len(candidate.blocks) * self.site.block_size
        cached = candidate.computed if not candidate.joined_once else 0
        slot = self.batch.join(candidate, capacity)
        self.scheduler.joined(candidate, cached)
        self.deltas.joined(candidate, slot)
        self.room.settle(candidate)
        candidate.passed, candidate.passed_since_s = 0, None
        if not candidate.joined_once:
            candidate.joined_once = True
            self.report.joined(candidate.stream, cached if candidate.parent is None else 0)
