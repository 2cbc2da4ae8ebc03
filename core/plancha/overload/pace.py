"""How fast those who wait get their turn, as measured lately."""

import math
from collections.abc import Collection, Mapping

import attrs

MEMORY_S = 20.0
"""What was seen so long ago counts 1/e of what is seen now."""


@attrs.define
class Pace:
    """Joins per second of a full batch for which somebody waits.

    Times without a queue say nothing about how fast one would move, so they are not looked at.
    """

    _at_s: float = 0.0
    _seconds: float = 0.0  # seen, less what was forgotten
    _joins: dict[int, float] = attrs.field(factory=dict)  # by tier, likewise

    def observe(self, seconds: float, joined: Mapping[int, int], now: float) -> None:
        """Somebody waited for so long, until now, and then so many joined, by tier."""
        kept = self._kept(now)
        self._at_s = now
        self._seconds = self._seconds * kept + seconds
        for tier in self._joins.keys() | joined.keys():
            self._joins[tier] = self._joins.get(tier, 0.0) * kept + joined.get(tier, 0)

    @property
    def tiers(self) -> Collection[int]:
        """Those of which anybody has joined."""
        return self._joins.keys()

    def per_s(self, tiers: Collection[int] | None, now: float, assumed_s: float = 0.0) -> float:
        """Joins of these tiers, None: of all; infinite where nothing is known or assumed.

        As if one join more had been seen, which took `assumed_s`; 0: it is expected now, however
        long it was waited for. So what is known fades into what is assumed, and never into "nobody
        will ever join".
        """
        seconds = self._seconds * self._kept(now) + assumed_s
        return (self.joins(tiers, now) + 1) / seconds if seconds else math.inf

    def joins(self, tiers: Collection[int] | None, now: float) -> float:
        """How many of these tiers have joined, less what was forgotten."""
        joins = (joins for tier, joins in self._joins.items() if tiers is None or tier in tiers)
        return sum(joins) * self._kept(now)

    def _kept(self, now: float) -> float:
        return math.exp((self._at_s - now) / MEMORY_S)
