"""Tiers in order, ageing, and who gives way, move by move."""

from collections.abc import Callable
from typing import Any

import pytest

from plancha.contracts import Site
from plancha.options import OptionsError
from plancha.sequence import Sequence
from plancha_schedulers.priority_preempt import PriorityPreempt, priority_preempt

New = Callable[..., Sequence]
MakeSite = Callable[..., Site]


def join(scheduler: PriorityPreempt, sequence: Sequence, now: float = 0.0) -> None:
    assert sequence in scheduler.waiting(now)
    scheduler.joined(sequence, 0)
    sequence.joined_once, sequence.slot = True, 0


def leave(scheduler: PriorityPreempt, sequence: Sequence, now: float) -> None:
    """It is preempted."""
    sequence.slot = None
    scheduler.add(sequence, now)


def order(scheduler: PriorityPreempt, now: float = 0.0) -> list[Sequence]:
    return list(scheduler.waiting(now))


def test_tiers_go_in_order_and_tenants_inside_them_by_what_they_were_served(
    sequence: New, site: MakeSite
) -> None:
    scheduler = priority_preempt({}, site())
    free = sequence("free", tier=2)
    mid = sequence("mid", tier=1)
    gold = [sequence("a"), sequence("a"), sequence("b")]
    for each in (free, mid, *gold):
        scheduler.add(each, 0.0)
    assert order(scheduler) == [gold[0], gold[2], gold[1], mid, free]


def test_the_preempted_return_before_newcomers_of_their_tier_and_of_no_other(
    sequence: New, site: MakeSite
) -> None:
    scheduler = priority_preempt({}, site())
    returned, newcomer, gold = sequence("a", tier=1), sequence("b", tier=1), sequence("g")
    scheduler.add(returned, 0.0)
    scheduler.add(newcomer, 0.0)
    join(scheduler, returned)
    scheduler.charge({"a": 500})
    leave(scheduler, returned, 1.0)
    scheduler.add(gold, 1.0)
    assert order(scheduler, 1.0) == [gold, returned, newcomer]


def test_who_has_waited_too_long_goes_first_but_one_of_a_tier_at_a_time(
    sequence: New, site: MakeSite
) -> None:
    scheduler = priority_preempt({"max_wait_s": 10}, site())
    gold, mid = sequence("g"), sequence("m", tier=1)
    free = [sequence("f", tier=2) for _ in range(3)]
    for each in (gold, mid, *free):
        scheduler.add(each, 0.0)
    assert order(scheduler, 9.9) == [gold, mid, *free]
    assert order(scheduler, 10.0) == [mid, free[0], gold, free[1], free[2]]
    join(scheduler, free[0], 10.0)
    assert order(scheduler, 11.0) == [mid, gold, free[1], free[2]]
    scheduler.remove(free[0])
    assert order(scheduler, 12.0) == [mid, free[1], gold, free[2]]


def test_a_preempted_sequence_ages_from_when_it_was_preempted(
    sequence: New, site: MakeSite
) -> None:
    scheduler = priority_preempt({"max_wait_s": 10}, site())
    gold, free = sequence("g"), sequence("f", tier=1)
    scheduler.add(gold, 0.0)
    scheduler.add(free, 0.0)
    join(scheduler, free)
    leave(scheduler, free, 60.0)
    assert order(scheduler, 69.9) == [gold, free]
    assert order(scheduler, 70.0) == [free, gold]


def test_among_the_aged_of_a_tier_the_tenant_served_least_goes_first(
    sequence: New, site: MakeSite
) -> None:
    scheduler = priority_preempt({"max_wait_s": 10}, site())
    gold = sequence("g")
    greedy = [sequence("greedy", tier=1) for _ in range(3)]
    modest = sequence("modest", tier=1)
    for each in (gold, *greedy, modest):
        scheduler.add(each, 0.0)
    join(scheduler, greedy[0])
    assert order(scheduler, 20.0) == [modest, gold, greedy[1], greedy[2]]


def test_victims_are_of_the_worst_tier_first_and_never_of_a_better_one(
    sequence: New, site: MakeSite
) -> None:
    scheduler = priority_preempt({}, site())
    gold = [sequence("g") for _ in range(2)]
    mid = [sequence("m", tier=1), sequence("n", tier=1)]
    free = [sequence("f", tier=2) for _ in range(2)]
    running = [*free, *mid, *gold]
    for each in running:
        scheduler.add(each, 0.0)
    for each in running:
        join(scheduler, each)
    scheduler.charge({"m": 9, "n": 4})
    assert list(scheduler.victims(running, gold[0])) == [*free[::-1], *mid, gold[1]]
    assert list(scheduler.victims(running, mid[1])) == [*free[::-1], mid[0]]
    assert list(scheduler.victims(running, free[1])) == []


def test_who_runs_by_its_age_gives_way_to_no_newcomer(sequence: New, site: MakeSite) -> None:
    scheduler = priority_preempt({"max_wait_s": 10}, site())
    gold, aged, other = sequence("g"), sequence("f", tier=1), sequence("f", tier=1)
    for each in (gold, aged, other):
        scheduler.add(each, 0.0)
    join(scheduler, aged, 10.0)
    join(scheduler, other, 10.0)
    assert list(scheduler.victims([aged, other], gold)) == [other]
    leave(scheduler, aged, 11.0)  # the leader took it: now it is like any other
    join(scheduler, aged, 12.0)
    assert list(scheduler.victims([aged, other], gold)) == [other, aged]


def test_alone_the_worst_tier_does_not_age(sequence: New, site: MakeSite) -> None:
    scheduler = priority_preempt({"max_wait_s": 0}, site())
    free = [sequence("f", tier=5) for _ in range(2)]
    for each in free:
        scheduler.add(each, 0.0)
    assert order(scheduler, 99.0) == free


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"max_wait": 3}, 'did you mean "max_wait_s"'),
        ({"max_wait_s": -1}, "scheduler.max_wait_s = -1"),
        ({"cached_factor": 1.5}, "from 0 to 1"),
    ],
)
def test_options_are_refused_by_name(
    options: dict[str, Any], complaint: str, site: MakeSite
) -> None:
    with pytest.raises(OptionsError, match=complaint):
        priority_preempt(options, site())


def test_prices_are_those_of_fair_queue(sequence: New, site: MakeSite) -> None:
    options = {"input_weight": 3, "output_weight": 0, "cached_factor": 1}
    scheduler = priority_preempt(options, site())
    a, b = sequence("a", prompt=10), sequence("b", prompt=10)
    later = [sequence("a"), sequence("b")]
    for each in (a, b, *later):
        scheduler.add(each, 0.0)
    scheduler.joined(a, 0)  # 30
    scheduler.joined(b, 10)  # at full price, 30 as well, and after the other one
    scheduler.charge({"a": 1000})  # for nothing
    assert order(scheduler) == later
