from math import sqrt
from statistics import NormalDist

import pytest

from plancha_app.selftest.ranks import p_value


def test_the_same_times_are_not_told_apart() -> None:
    assert p_value([1.0] * 9, [1.0] * 9) == 1.0
    assert p_value([1, 2, 3, 4], [4, 3, 2, 1]) == 1.0
    assert p_value([], []) == 1.0


@pytest.mark.parametrize(
    ("one", "other", "z"),
    [
        # U is 0 of a mean of 32, and the variance 8 * 8 / 12 * 17.
        ([1, 2, 3, 4, 5, 6, 7, 8], [9, 10, 11, 12, 13, 14, 15, 16], 31.5 / sqrt(64 / 12 * 17)),
        # The ranks come to 64, so U is 28.
        ([1, 3, 5, 7, 9, 11, 13, 15], [2, 4, 6, 8, 10, 12, 14, 16], 3.5 / sqrt(64 / 12 * 17)),
        # Ranks 1.5, 4.5, 8.5, twice each, come to 29, so U is 8 of 18. Groups of 2, 4, 4 and 2 ties
        # take (6 + 60 + 60 + 6) / (12 * 11) = 1 off 13.
        ([1, 1, 2, 2, 3, 3], [2, 2, 3, 3, 4, 4], 9.5 / sqrt(36 / 12 * 12)),
    ],
)
def test_it_is_the_test_of_mann_and_whitney(one: list[float], other: list[float], z: float) -> None:
    expected = 2 * (1 - NormalDist().cdf(z))

    assert p_value(one, other) == pytest.approx(expected)
    assert p_value(other, one) == pytest.approx(expected)
