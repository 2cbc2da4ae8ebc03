"""When the next process is started in the place of one that ended; the test has the clock."""

from collections.abc import Sequence

import pytest

from plancha_app.restarts import Restarts


def pauses(restarts: Restarts, lives: Sequence[tuple[float | None, float]]) -> list[float | None]:
    """Of processes that were ready after so long (None: never) and ended so long after that."""
    now, waited = 1000.0, list[float | None]()
    for ready_s, lived_s in lives:
        if ready_s is not None:
            now += ready_s
            restarts.ready(now)
        now += lived_s
        pause_s = restarts.ended(now)
        waited.append(pause_s)
        now += pause_s or 0.0
    return waited


def test_one_that_was_ready_and_keeps_dying_is_started_less_and_less_often() -> None:
    found = pauses(Restarts(), [(1.0, 1.0)] * 10)

    doubled = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4]
    assert found == pytest.approx([*doubled, 10.0, 10.0, 10.0])


def test_one_that_was_well_for_a_minute_is_started_at_once_again() -> None:
    found = pauses(Restarts(), [(1.0, 1.0)] * 4 + [(1.0, 60.0)] + [(1.0, 59.0)] * 2)

    assert found == pytest.approx([0.1, 0.2, 0.4, 0.8, 0.1, 0.2, 0.4])


def test_a_load_that_took_long_is_no_sign_of_health() -> None:
    found = pauses(Restarts(), [(600.0, 1.0)] * 3 + [(None, 600.0)])

    assert found == pytest.approx([0.1, 0.2, 0.4, 0.8])


def test_who_was_never_ready_is_given_up_at_the_fourth_end_in_a_row() -> None:
    restarts = Restarts()

    assert pauses(restarts, [(None, 300.0)] * 4) == pytest.approx([0.1, 0.2, 0.4, None])
    assert (restarts.ever_ready, restarts.tries) == (False, 4)


def test_who_was_ready_once_is_never_given_up() -> None:
    found = pauses(Restarts(), [(None, 1.0)] * 3 + [(1.0, 1.0)] + [(None, 1.0)] * 20)

    assert None not in found
    assert found[-1] == 10.0


def test_ready_may_be_said_again_and_counts_from_the_first_time() -> None:
    restarts = Restarts()
    restarts.ready(0.0)
    restarts.ended(1.0)
    restarts.ready(10.0)
    restarts.ready(60.0)  # the worker was lost and found meanwhile, say

    assert restarts.ended(70.0) == pytest.approx(0.1)
