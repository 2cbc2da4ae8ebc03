"""Tiers: a better one goes first and takes what it needs, but the others do not starve.

**Strictness.** As long as somebody of a better tier (a lower number) waits, nobody of a worse one
joins, and a newcomer short of a slot or of blocks takes them from worse tiers. **Fairness.** Inside
a tier tenants are held even as by `fair-queue`. **Ageing.** A sequence that has waited for
`max_wait_s`, since it was accepted or preempted, goes before everybody, and nobody but the leader
takes its place from it until it ends; but only one of each worse tier runs by its age at a time. So
every tier moves on, and however much is asked of the worse ones, beside a better tier that always
waits each of them holds one slot at most.
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
from plancha_schedulers.tier import Tier


@attrs.frozen(kw_only=True)
class PriorityPreemptOptions:
    """A better tier goes first and takes what it needs; inside a tier it is `fair-queue`."""

    max_wait_s: float = attrs.field(default=30.0, validator=at_least(0))
    """Who has waited for so long goes before everybody, one of each tier at a time."""

    input_weight: float = attrs.field(default=1.0, validator=at_least(0))
    """As of `fair-queue`."""

    output_weight: float = attrs.field(default=2.0, validator=at_least(0))
    """As of `fair-queue`."""

    cached_factor: float = attrs.field(default=0.1, validator=between(0, 1))
    """As of `fair-queue`."""

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
    """The tiers in order, and before them whoever of the worse ones has waited for too long."""

    def __init__(self, max_wait_s: float, prices: Prices, site: Site) -> None:
        self._max_wait_s = max_wait_s
        self._prices = prices
        self._site = site
        self._tiers: dict[int, Tier] = {}

    def add(self, sequence: Sequence, now: float) -> None:
        """It waits from now on, in its tier."""
        self._tier(sequence).add(sequence, now)

    def waiting(self, now: float) -> Iterator[Sequence]:
        """The aged, then tier by tier, each as `fair-queue` has it."""
        tiers = [tier for _, tier in sorted(self._tiers.items())]
        aged = [tier.age(now, self._max_wait_s) for tier in tiers[1:]]
        yield from (each for each in aged if each is not None)
        for tier in tiers:
            yield from (each for each in tier.queue.waiting(now) if each not in aged)

    def joined(self, sequence: Sequence, cached: int) -> None:
        """It waits no more."""
        self._tier(sequence).joined(sequence, cached)

    def victims(self, running: Seq[Sequence], for_: Sequence) -> Iterator[Sequence]:
        """From the worst tier first, there as `fair-queue` has it; never who joined by its age."""
        own = self._standing(for_)
        kept = [tier.running_aged for tier in self._tiers.values()]
        below = (each for each in running if self._standing(each) > own and each not in kept)
        return iter(sorted(below, key=self._standing, reverse=True))

    def charge(self, output: Mapping[str, int]) -> None:
        """A tenant pays in the tier it has."""
        for tier in self._tiers.values():
            tier.queue.charge(output)

    def remove(self, sequence: Sequence) -> None:
        """It leaves, wherever it is."""
        self._tier(sequence).remove(sequence)

    def why(self, sequence: Sequence) -> str | None:
        """A better tier waits; else as `fair-queue` has it."""
        tier = self._tier(sequence)
        if sequence is tier.aged:
            return None
        if any(better.waits for number, better in self._tiers.items() if number < sequence.tier):
            return "tier"
        return tier.queue.why(sequence)

    def _tier(self, sequence: Sequence) -> Tier:
        if sequence.tier not in self._tiers:
            self._tiers[sequence.tier] = Tier(FairQueue(self._prices, self._site))
        return self._tiers[sequence.tier]

    def _standing(self, sequence: Sequence) -> tuple[int, float, int]:
        return sequence.tier, *self._tier(sequence).queue.standing(sequence)
