"""Making room: who grows, who has to go for it, and what becomes of who went."""

from collections import Counter
from itertools import chain

import attrs
import numpy as np

from plancha.contracts import Allocator, Eviction, Scheduler, Site
from plancha.planning.batch import Batch
from plancha.planning.deltas import Deltas
from plancha.planning.step_cost import StepCost
from plancha.sequence import Sequence
from plancha.traces.trace import Reason

PROTECTED_AFTER = 3
"""Preemptions after which a sequence gives way to the leader alone."""


@attrs.define(kw_only=True, eq=False)
class Room:
    """Blocks and slots of the running batch. Works for the planner, inside one plan at a time.

    The leader, of the best tier running the one that arrived first, is never a victim, so that
    something always finishes. Whoever grew or joined in a plan is not evicted in it.
    """

    site: Site
    batch: Batch
    scheduler: Scheduler
    allocator: Allocator
    deltas: Deltas
    cost: StepCost
    preemptions: Counter[Eviction] = attrs.field(factory=Counter, init=False)
    swapped_out: list[Sequence] = attrs.field(factory=list, init=False)  # in the plan being made
    joined: set[int] = attrs.field(factory=set, init=False)  # streams, in it
    short_of_blocks: bool = attrs.field(default=False, init=False)  # somebody did not fit in it
    aside: dict[int, Sequence] = attrs.field(factory=dict, init=False)  # by stream; no slot, blocks
    _kept: set[int] = attrs.field(factory=set, init=False)  # streams, grown or copied from in it

    def begin(self) -> None:
        """A new plan."""
        self.joined.clear()
        self._kept.clear()
        self.swapped_out = []
        self.short_of_blocks = False

    def grow_running(self, now: float) -> None:
        """Blocks for every running sequence's next token, best first, by force if need be."""
        batch = self.batch
        short = np.flatnonzero(batch.length > batch.capacity)
        if short.size == 0:
            return
        needy = [batch.sequences[slot] for slot in short.tolist()]
        for sequence in sorted((each for each in needy if each is not None), key=_rank):
            if sequence.slot is None:
                continue  # a victim of one before it
            if not self._grow_one(sequence, sequence.slot, now):
                self.preempt(sequence, now, "blocks")

    def clear_for(self, candidate: Sequence, blocks: int, now: float) -> bool:
        """Evict lower tiers until `candidate` has a slot and `blocks` more; False: not possible."""
        slots = 0 if self.batch.free_slots else 1
        if slots == 0 and blocks <= 0:
            return True
        lower = [each for each in self.batch.running() if each.tier > candidate.tier]
        victims = self._collect(lower, candidate, blocks, slots)
        if victims is None:
            self.short_of_blocks |= blocks > 0
            return False
        for victim in victims:
            self._take_from(victim, now, "tier")
        return True

    def keep(self, sequence: Sequence) -> None:
        """It is not to be evicted in this plan."""
        self._kept.add(sequence.stream)

    def preempt(self, sequence: Sequence, now: float, reason: Reason) -> None:
        """Take its slot and blocks; it waits for its turn, its K and V kept if that is cheaper."""
        self._leave_batch(sequence)
        eviction = self._evict(sequence)
        sequence.preemptions += 1
        sequence.trace.moved(
            "preempted", now, then=reason, reason=reason, kept=eviction is Eviction.SWAPPED
        )
        self.scheduler.add(sequence, now)

    def set_aside(self, sequence: Sequence) -> None:
        """Take its slot; it keeps its blocks until somebody needs them."""
        self._leave_batch(sequence)
        self.aside[sequence.stream] = sequence

    def leave(self, sequence: Sequence) -> None:
        """Take its slot, if it has one, and its blocks; nothing of it is kept."""
        if sequence.slot is not None:
            self._leave_batch(sequence)
        self.aside.pop(sequence.stream, None)
        self.allocator.release(sequence)
        sequence.computed = 0

    def _take_from(self, victim: Sequence, now: float, reason: Reason) -> None:
        if self.aside.pop(victim.stream, None) is None:
            self.preempt(victim, now, reason)
            return
        eviction = self._evict(victim)
        trace = victim.trace
        waits_for = trace.wait.reason if trace.wait else reason
        trace.moved("evicted", now, then=waits_for, kept=eviction is Eviction.SWAPPED)

    def _evict(self, sequence: Sequence) -> Eviction:
        blocks = -(-sequence.computed // self.site.block_size)
        swap = 2 * blocks * self.site.loaded().block_copy_s < self.cost.recompute_s(
            sequence.computed
        )
        eviction = self.allocator.evict(sequence, computed=sequence.computed, swap=swap)
        if eviction is Eviction.SWAPPED:
            self.swapped_out.append(sequence)
        else:
            sequence.computed = 0
        self.preemptions[eviction] += 1
        return eviction

    def _leave_batch(self, sequence: Sequence) -> None:
        self.deltas.left(self.batch.leave(sequence))

    def _grow_one(self, sequence: Sequence, slot: int, now: float) -> bool:
        tokens = int(self.batch.length[slot])
        short = self.allocator.need(tokens, sequence) - self.allocator.stats().available
        if short > 0:
            victims = self._collect(self.batch.running(), sequence, short, 0)
            if victims is None:
                return False
            for victim in victims:
                self._take_from(victim, now, "blocks")
        held = len(sequence.blocks)
        if not self.allocator.grow(sequence, tokens):
            raise RuntimeError(f"the allocator refused blocks it had: stream {sequence.stream}")
        self.deltas.grew(slot, held, sequence.blocks[held:])
        self.batch.capacity[slot] = len(sequence.blocks) * self.site.block_size
        self.keep(sequence)
        return True

    def _collect(
        self, running: list[Sequence], for_: Sequence, blocks: int, slots: int
    ) -> list[Sequence] | None:
        """Who has to go for that much, as the scheduler orders them; None: all would not do.

        The blocks of those that were set aside go first.
        """
        leader = min(self.batch.running(), key=_rank, default=None)
        allowed = {
            each.stream
            for each in running
            if each is not leader
            and each is not for_
            and each.stream not in self._kept
            and each.stream not in self.joined
            and (for_ is leader or each.preemptions < PROTECTED_AFTER)
        }
        offered = self.scheduler.victims(running, for_)
        if for_ is leader:  # whatever the scheduler thinks of it
            offered = chain(offered, sorted(running, key=_rank, reverse=True))
        victims = [] if blocks <= 0 else self._set_aside(for_, blocks)
        aside = len(victims)
        if slots == 0 and self.allocator.freeable(victims) >= blocks:
            return victims
        for victim in offered:
            if victim.stream not in allowed:
                continue
            allowed.discard(victim.stream)
            victims.append(victim)
            if len(victims) - aside >= slots and self.allocator.freeable(victims) >= blocks:
                return victims
        return None

    def _set_aside(self, for_: Sequence, blocks: int) -> list[Sequence]:
        """As many of those as that takes, or all; first whose readers are not back."""
        victims: list[Sequence] = []
        for sequence in sorted(self.aside.values(), key=lambda each: not each.paused):
            if self.allocator.freeable(victims) >= blocks:
                break
            if sequence is not for_:
                victims.append(sequence)
        return victims


def _rank(sequence: Sequence) -> tuple[int, int]:
    return sequence.tier, sequence.arrival
