"""Tiers: a better one goes first and takes what it needs, but the others do not starve.

**Strictness.** As long as somebody of a better tier (a lower number) waits, nobody of a worse one
joins, and a newcomer short of a slot or of blocks takes them from worse tiers. **Fairness.** Inside
a tier tenants are held even as by `fair-queue`. **Ageing.** A sequence that has waited for
`max_wait_s`, since it was accepted or preempted, goes before everybody, and nobody but the leader
takes its place from it until it ends; but only one of each worse tier runs by its age at a time. So
every tier moves on by at least one sequence, and all those below the best together never hold more
than one place each, however much they ask for.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from typing import Any

import attrs

from plancha.contracts import Site
from plancha.options import at_least, between, structure
from plancha.sequence import Sequence
from plancha_schedulers.fair_queue import FairQueue
from plancha_schedulers.prices import Prices


@attrs.frozen(kw_only=True)
class PriorityPreemptOptions:
    """The `[scheduler]` table of `priority-preempt`: when to age, and `fair-queue`'s `Prices`."""

    max_wait_s: float = attrs.field(default=30.0, validator=at_least(0))
    input_weight: float = attrs.field(default=1.0, validator=at_least(0))
    output_weight: float = attrs.field(default=2.0, validator=at_least(0))
    cached_factor: float = attrs.field(default=0.1, validator=between(0, 1))

    @property
    def prices(self) -> Prices:
        """Those inside every tier."""
        return Prices(
            input_weight=self.input_weight,
            output_weight=self.output_weight,
            cached_factor=self.cached_factor,
        )


def priority_preempt(options: Mapping[str, Any], site: Site) -> "PriorityPreempt":
    """The entry point. Raises `OptionsError`."""
    mine = structure(options, PriorityPreemptOptions, "scheduler")
    return PriorityPreempt(mine.max_wait_s, mine.prices, site)


class PriorityPreempt:
    """A fair queue for each tier, and at most one sequence of each worse tier that runs by age."""

    def __init__(self, max_wait_s: float, prices: Prices, site: Site) -> None:
        self._max_wait_s = max_wait_s
        self._prices = prices
        self._site = site
        self._tiers: dict[int, FairQueue] = {}
        self._waits_since: dict[int, float] = {}  # by stream
        self._aged: dict[int, Sequence] = {}  # by tier: who goes first by its age
        self._running_aged: dict[int, Sequence] = {}  # by tier: who joined so

    def add(self, sequence: Sequence, now: float) -> None:
        """It waits from now on, in its tier."""
        self._leaves_batch(sequence)
        self._waits_since[sequence.stream] = now
        self._queue(sequence).add(sequence, now)

    def waiting(self, now: float) -> Iterator[Sequence]:
        """The aged, then tier by tier, each as `fair-queue` has it."""
        aged = self._aged = self._find_aged(now)
        yield from aged.values()
        for tier, queue in sorted(self._tiers.items()):
            yield from (each for each in queue.waiting(now) if each is not aged.get(tier))

    def joined(self, sequence: Sequence, cached: int) -> None:
        """It waits no more; its tenant pays in its own tier, also if it went first by its age."""
        del self._waits_since[sequence.stream]
        if self._aged.get(sequence.tier) is sequence:
            self._running_aged[sequence.tier] = sequence
        self._queue(sequence).joined(sequence, cached)

    def victims(self, running: Seq[Sequence], for_: Sequence) -> Iterator[Sequence]:
        """From the worst tier first, there as `fair-queue` has it; never who joined by its age."""
        own = self._standing(for_)
        kept = self._running_aged.values()
        below = [each for each in running if self._standing(each) > own and each not in kept]
        return iter(sorted(below, key=self._standing, reverse=True))

    def charge(self, output: Mapping[str, int]) -> None:
        """A tenant pays in the tier it has."""
        for queue in self._tiers.values():
            queue.charge(output)

    def remove(self, sequence: Sequence) -> None:
        """It leaves, wherever it is."""
        self._leaves_batch(sequence)
        self._waits_since.pop(sequence.stream, None)
        self._queue(sequence).remove(sequence)

    def _find_aged(self, now: float) -> dict[int, Sequence]:
        """By tier, if nobody of it runs by its age already: who goes first. Not of the best one."""
        found: dict[int, Sequence] = {}
        for tier in sorted(self._tiers)[1:]:
            if tier not in self._running_aged:
                for head in self._tiers[tier].heads():
                    if now - self._waits_since[head.stream] >= self._max_wait_s:
                        found[tier] = head
                        break
        return found

    def _leaves_batch(self, sequence: Sequence) -> None:
        if self._running_aged.get(sequence.tier) is sequence:
            del self._running_aged[sequence.tier]

    def _queue(self, sequence: Sequence) -> FairQueue:
        if sequence.tier not in self._tiers:
            self._tiers[sequence.tier] = FairQueue(self._prices, self._site)
        return self._tiers[sequence.tier]

    def _standing(self, sequence: Sequence) -> tuple[int, float, int]:
        return sequence.tier, *self._queue(sequence).standing(sequence)
