"""When a worker counts as stalled: somebody waits for a step, and none ends."""

from plancha.stall_watch import StallWatch


def test_an_idle_worker_is_well_however_long() -> None:
    watch = StallWatch(60)
    for now in (0, 600, 6000):
        watch.look(7, waited_for=False, now=now)
        assert not watch.stalled
    watch.look(7, waited_for=True, now=6001)  # work comes after a long quiet time
    assert not watch.stalled


def test_a_step_that_takes_too_long_stalls_it_until_the_next_one_ends() -> None:
    watch = StallWatch(60)
    watch.look(7, waited_for=False, now=1000)
    watch.look(7, waited_for=True, now=1059)
    assert not watch.stalled
    watch.look(7, waited_for=True, now=1060)
    assert watch.stalled
    watch.look(7, waited_for=False, now=1061)  # all have given up, and it is stuck as before
    assert watch.stalled
    watch.look(8, waited_for=False, now=1062)
    assert not watch.stalled


def test_long_work_in_many_steps_is_no_stall() -> None:
    watch = StallWatch(60)
    for step in range(100):
        watch.look(step, waited_for=True, now=50.0 * step)
        assert not watch.stalled


def test_a_worker_that_never_says_anything_stalls_too_and_its_successor_begins_anew() -> None:
    watch = StallWatch(60)
    watch.look(None, waited_for=True, now=1000)
    assert not watch.stalled
    watch.look(None, waited_for=True, now=1060)
    assert watch.stalled
    watch.look(0, waited_for=True, now=1061)
    assert not watch.stalled


def test_without_a_deadline_nothing_is_ever_stalled() -> None:
    watch = StallWatch(0)
    for now in (0, 10**9):
        watch.look(7, waited_for=True, now=now)
        assert not watch.stalled
