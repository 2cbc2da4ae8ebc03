"""Whether two samples of times differ, by their ranks alone.

The test of Mann and Whitney ("On a test of whether one of two random variables is stochastically
larger than the other", 1947), two-sided, by the normal approximation with ties corrected for and
for continuity.
"""

import math
from collections import Counter
from collections.abc import Sequence


def p_value(one: Sequence[float], other: Sequence[float]) -> float:
    """How likely samples are that differ at least so much if both come from the same source.

    1.0 when there is nothing to tell apart. Good from about eight values each on.
    """
    ranks = _ranks([*one, *other])
    n, m = len(one), len(other)
    u = sum(ranks[:n]) - n * (n + 1) / 2
    total = n + m
    if total < 2:
        return 1.0
    ties = sum(count**3 - count for count in Counter(ranks).values())
    variance = n * m / 12 * (total + 1 - ties / (total * (total - 1)))
    if variance <= 0:
        return 1.0
    z = max(0.0, abs(u - n * m / 2) - 0.5) / math.sqrt(variance)
    return math.erfc(z / math.sqrt(2))


def _ranks(values: Sequence[float]) -> list[float]:
    """From 1 on; equal values share the mean of their ranks."""
    first: dict[float, int] = {}
    for rank, value in enumerate(sorted(values), 1):
        first.setdefault(value, rank)
    counts = Counter(values)
    return [first[value] + (counts[value] - 1) / 2 for value in values]
