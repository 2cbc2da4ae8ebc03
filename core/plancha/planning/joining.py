"""Who joins the batch: the scheduler's order, bent only as far as memory and limits make it."""

from collections.abc import Iterator, Mapping
from itertools import islice

import attrs

from plancha.contracts import Allocator, Scheduler, Site
from plancha.metrics.meters import Meters
from plancha.overload.overload import Overload
from plancha.planning.batch import Batch
from plancha.planning.deltas import Deltas
from plancha.planning.report import Report
from plancha.planning.room import Room
from plancha.sequence import Sequence

WATERMARK = 0.01
"""Share of the pool kept free when a sequence joins beside others, so that they can grow."""

MOST_PASSES = 16
LONGEST_PASSED_S = 2.0
"""A sequence that does not fit may be passed so often, or for so long; then it is waited for."""

BEST_TIER = 0

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
    overload: Overload
    meters: Meters
    alive: Mapping[int, Sequence]  # by stream: accepted and not ended
    step: int = attrs.field(default=0, init=False)  # that is planned
    _first: Sequence | None = attrs.field(default=None, init=False)  # of the line, lately
    _needs: int = attrs.field(default=0, init=False)  # blocks, of who was looked at last
    _available: int = attrs.field(default=0, init=False)  # blocks, for it
    _short: int = attrs.field(default=0, init=False)  # of blocks, with those kept for others

    def anyone(self, now: float) -> bool:
        """Whether somebody waits whom its tenant's limit does not hold back."""
        if len(self.alive) == self.batch.occupied:
            return False
        self._first = next(self._unlimited(now), None)
        return self._first is not None

    def next(self, now: float, ahead: Mapping[int, int], budget: int) -> Sequence | None:
        """Whoever joined, or None when nobody can.

        That is when those before the first in line, with `ahead` prompt tokens by tier, use up the
        `budget`. A candidate held back by its tenant's limit is skipped; one that does not fit may
        be passed a bounded number of times.
        """
        full = self.batch.free_slots == 0
        worst_tier = self.batch.worst_tier if full else 0
        if full and worst_tier == BEST_TIER:
            if self._first is not None and self._first.slot is None:
                self._first.trace.passed_over("slots", self.step, now)
            return None  # nobody's slot can be taken
        passed: list[Sequence] = []
        for place, candidate in enumerate(islice(self._unlimited(now), LOOKAHEAD)):
            if place == 0 and _tokens_before(candidate, ahead) >= budget:
                candidate.trace.passed_over("budget", self.step, now)
                return None
            if full and candidate.tier >= worst_tier:
                if place == 0:
                    candidate.trace.passed_over("slots", self.step, now)
                continue  # a better tier may stand behind it
            if self._fits(candidate, now):
                self._join(candidate, now)
                for each in passed:
                    each.passed += 1
                    each.trace.overtaken()
                return candidate
            self._note_what_is_short(candidate, now)
            if candidate.joined_once or self._waited_enough(candidate, now):
                return None
            passed.append(candidate)
        return None

    def _unlimited(self, now: float) -> Iterator[Sequence]:
        """The line without those whose tenant has as many in the batch as it may.

        And without those that do not wait: they are paused, or the scheduler forgot to forget.
        """
        limited: dict[str, bool] = {}
        for candidate in self.scheduler.waiting(now):
            if candidate.slot is not None or candidate.stream not in self.alive:
                continue
            if candidate.paused:
                continue
            tenant = candidate.tenant
            if tenant not in limited:
                limit = self.site.tenant(tenant).max_running
                limited[tenant] = limit is not None and self.batch.running_of(tenant) >= limit
                if limited[tenant]:
                    candidate.trace.passed_over("tenant_limit", self.step, now)
            if not limited[tenant]:
                yield candidate

    def _waited_enough(self, candidate: Sequence, now: float) -> bool:
        """Whether nobody may pass it any more: it does not fit now, as perhaps before."""
        if candidate.passed_since_s is None:
            candidate.passed_since_s = now
        waited_s = now - candidate.passed_since_s
        return candidate.passed >= MOST_PASSES or waited_s >= LONGEST_PASSED_S

    def _fits(self, candidate: Sequence, now: float) -> bool:
        """Whether it holds its blocks now; if not, it holds no more than before."""
        if candidate.blocks:  # it was set aside, and nobody needed them
            return self._has_room(candidate, now)
        if candidate.host_blocks:
            return self._has_room(candidate, now) and self.allocator.restore(candidate)
        parent = candidate.parent
        if parent is not None and self._can_fork(parent, candidate):
            has_block = self.allocator.stats().available > self._spare()
            if has_block and self._has_slot(candidate, now):
                if self.allocator.fork(parent, candidate):
                    self.room.keep(parent)  # until its block is copied
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
        """Before it has tokens of its own, and while the parent's blocks hold the whole prompt.

        What a parent that joins in this very plan brings back from the host comes after the copy.
        """
        if candidate.joined_once or parent.slot is None or parent.stream in self.room.joined:
            return False
        return bool(self.batch.computed[parent.slot] >= parent.prompt_tokens)

    def _has_slot(self, candidate: Sequence, now: float) -> bool:
        return self.room.clear_for(candidate, 0, now)

    def _has_room(self, candidate: Sequence, now: float) -> bool:
        self._needs = self.allocator.need(candidate.length, candidate)
        self._available = self.allocator.stats().available
        self._short = self._needs + self._spare() - self._available
        return self.room.clear_for(candidate, self._short, now)

    def _note_what_is_short(self, candidate: Sequence, now: float) -> None:
        """It was looked at, does not fit, and holds no more than before."""
        needs, available, trace = self._needs, self._available, candidate.trace
        if self._short <= 0 and not self.batch.free_slots:
            trace.passed_over("slots", self.step, now)
        elif needs > available:
            trace.passed_over("blocks", self.step, now, needs, available)
        else:
            trace.passed_over("watermark", self.step, now, needs, available)

    def _spare(self) -> int:
        """Blocks to be left for others."""
        beside_others = self.batch.free_slots < len(self.batch.sequences)
        return int(self.site.loaded().blocks * WATERMARK) if beside_others else 0

    def _join(self, candidate: Sequence, now: float) -> None:
        if not self.allocator.grow(candidate, candidate.length):
            raise RuntimeError(f"the allocator refused blocks it had: stream {candidate.stream}")
        capacity = len(candidate.blocks) * self.site.block_size
        cached = candidate.computed if not candidate.joined_once else 0
        token_ids = candidate.token_ids  # its own, which nobody changes; in the batch it has a row
        slot = self.batch.join(candidate, capacity)
        self.scheduler.joined(candidate, cached)
        self.deltas.joined(candidate, slot, token_ids)
        self.room.joined.add(candidate.stream)
        self.room.aside.pop(candidate.stream, None)
        candidate.passed, candidate.passed_since_s = 0, None
        if candidate.joined_once:
            candidate.trace.moved("resumed", now, computed_tokens=candidate.computed)
        else:
            candidate.trace.moved("joined", now, cached_tokens=cached)
        if not candidate.joined_once:
            candidate.joined_once = True
            self.overload.joined(candidate, cached)
            self.meters.joined(candidate, cached, now)
            self.report.joined(candidate.stream, cached if candidate.parent is None else 0)


def _tokens_before(candidate: Sequence, ahead: Mapping[int, int]) -> int:
    """Prompt tokens that are computed before its own: those of its tier and of better ones."""
    return sum(tokens for tier, tokens in ahead.items() if tier <= candidate.tier)
