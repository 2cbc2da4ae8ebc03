"""A process is taken for hung by what its parent hears of it, look by look."""

import pytest

from plancha_app.hang_watch import STARTING_S, HangWatch, interval_s


def looks_until_hung(watch: HangWatch) -> int:
    looks = 1
    while not watch.look():
        looks += 1
    return looks


@pytest.mark.parametrize("timeout_s", [0.5, 30.0, 300.0])
def test_silence_is_borne_for_as_long_as_was_said(timeout_s: float) -> None:
    watch = HangWatch(timeout_s)
    watch.heard()

    borne_s = looks_until_hung(watch) * interval_s(timeout_s)

    assert timeout_s < borne_s <= timeout_s * 1.25


@pytest.mark.parametrize("timeout_s", [0.5, 30.0, 300.0])
def test_a_process_that_starts_has_a_minute_before_its_first_word(timeout_s: float) -> None:
    borne_s = looks_until_hung(HangWatch(timeout_s)) * interval_s(timeout_s)

    assert max(timeout_s, STARTING_S) < borne_s
    assert borne_s <= max(timeout_s, STARTING_S) + 2 * interval_s(timeout_s)


def test_who_gives_signs_at_every_other_look_is_never_taken_for_hung() -> None:
    watch = HangWatch(8.0)
    for _ in range(1000):
        watch.heard()
        assert not watch.look()
        assert not watch.look()


def test_a_parent_that_stood_still_for_an_hour_has_looked_no_oftener() -> None:
    """Looks are all there is: what the clock did between two of them plays no part."""
    watch = HangWatch(8.0)
    watch.heard()
    assert [watch.look() for _ in range(9)] == [False] * 8 + [True]
