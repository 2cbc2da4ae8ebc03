"""The latest durations, one by one, for who wants to know how it is now and not how it was."""

from collections import deque
from collections.abc import Mapping

import attrs
import numpy as np
import numpy.typing as npt

KEPT = 2048
"""Entries; an entry is what a step brought, of however many sequences."""

MEDIAN, WORST = 0.5, 0.99


@attrs.frozen
class Quantiles:
    """Of `count` durations, in seconds; None where there are none.

    A quantile is one of the values: the least that so large a share of them does not exceed.
    """

    count: int = 0
    p50_s: float | None = None
    p99_s: float | None = None


NOTHING = Quantiles()


class Recent:
    """A ring of durations, each with how many sequences of which tenants had it."""

    def __init__(self) -> None:
        self._entries: deque[tuple[float, float, Mapping[str, int]]] = deque(maxlen=KEPT)

    def observe(self, now: float, seconds: float, tenants: Mapping[str, int]) -> None:
        """So many of each tenant took `seconds`. `tenants` is kept and must not change."""
        self._entries.append((now, seconds, tenants))

    def since(self, begin_s: float) -> tuple[Quantiles, dict[str, Quantiles]]:
        """Of all that came at `begin_s` or later, and of each tenant's."""
        values: dict[str, list[float]] = {}
        weights: dict[str, list[int]] = {}
        everybody: list[int] = []
        durations: list[float] = []
        for at_s, seconds, tenants in reversed(self._entries):
            if at_s < begin_s:
                break
            durations.append(seconds)
            everybody.append(sum(tenants.values()))
            for tenant, times in tenants.items():
                values.setdefault(tenant, []).append(seconds)
                weights.setdefault(tenant, []).append(times)
        each = {tenant: _quantiles(values[tenant], weights[tenant]) for tenant in values}
        return _quantiles(durations, everybody), each


def _quantiles(values: list[float], weights: list[int]) -> Quantiles:
    count = sum(weights)
    if count == 0:
        return NOTHING
    sorted_values: npt.NDArray[np.float64] = np.array(values)
    order = np.argsort(sorted_values, kind="stable")
    sorted_values = sorted_values[order]
    upto = np.cumsum(np.array(weights)[order])
    # An exact share would fall on the next value for want of a bit in the floating point.
    ranks = [np.ceil(round(share * count, 6)) for share in (MEDIAN, WORST)]
    median, worst = sorted_values[np.searchsorted(upto, ranks)].tolist()
    return Quantiles(count, median, worst)
