"""A histogram as Prometheus counts it: how many, and how much in all."""

from bisect import bisect_left
from itertools import accumulate


class Histogram:
    """Counts of observations by upper bound, which belongs to its bucket, and their sum.

    `bounds` increase; behind the last there is a bucket without one.
    """

    def __init__(self, *bounds: float) -> None:
        self.sum = 0.0
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)

    @property
    def count(self) -> int:
        """Observations so far."""
        return sum(self._counts)

    def observe(self, value: float, times: int = 1) -> None:
        """So many of the same value: a whole batch's, in one go."""
        self._counts[bisect_left(self._bounds, value)] += times
        self.sum += value * times

    def buckets(self) -> list[tuple[str, float]]:
        """Upper bounds as Prometheus writes them, each with how many were not above it."""
        bounds = [*map(str, map(float, self._bounds)), "+Inf"]
        return list(zip(bounds, map(float, accumulate(self._counts)), strict=True))
