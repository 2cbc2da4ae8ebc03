"""The virtual token counters, move by move. Prices: 1 a prompt token, 2 an output token."""

from collections.abc import Callable
from typing import Any

import pytest

from plancha.contracts import Site, Tenant
from plancha.options import OptionsError
from plancha.sequence import Sequence
from plancha_schedulers.fair_queue import FairQueue, fair_queue

New = Callable[..., Sequence]
MakeSite = Callable[..., Site]


def join(scheduler: FairQueue, sequence: Sequence, cached: int = 0) -> None:
    scheduler.joined(sequence, cached)
    sequence.joined_once, sequence.slot = True, 0


def leave(scheduler: FairQueue, sequence: Sequence) -> None:
    """It is preempted."""
    sequence.slot = None
    scheduler.add(sequence, 0.0)


def order(scheduler: FairQueue) -> list[Sequence]:
    return list(scheduler.waiting(0.0))


def counter(scheduler: FairQueue, sequence: Sequence) -> float:
    return scheduler.standing(sequence)[0]


def test_the_tenant_served_least_goes_first(sequence: New, site: MakeSite) -> None:
    scheduler = fair_queue({}, site())
    one, two, three = sequence("a"), sequence("a"), sequence("b")
    for each in (one, two, three):
        scheduler.add(each, 0.0)
    assert order(scheduler) == [one, three, two]
    join(scheduler, one)
    assert order(scheduler) == [three, two]


def test_a_tenants_own_go_in_order_of_acceptance(sequence: New, site: MakeSite) -> None:
    scheduler = fair_queue({}, site())
    mine = [sequence("a") for _ in range(5)]
    for each in (mine[3], mine[0], mine[4], mine[2], mine[1]):
        scheduler.add(each, 0.0)
    assert order(scheduler) == mine


def test_heads_go_before_seconds_so_that_nobodys_line_blocks_another(
    sequence: New, site: MakeSite
) -> None:
    scheduler = fair_queue({}, site())
    flood = [sequence("a") for _ in range(200)]
    light = [sequence("b"), sequence("c")]
    for each in flood + light:
        scheduler.add(each, 0.0)
    assert order(scheduler)[:4] == [flood[0], *light, flood[1]]


def test_a_prompt_is_paid_on_joining_once_and_outputs_as_they_come(
    sequence: New, site: MakeSite
) -> None:
    scheduler = fair_queue({}, site())
    mine = sequence("a", prompt=100)
    scheduler.add(mine, 0.0)
    assert counter(scheduler, mine) == 0
    join(scheduler, mine)
    assert counter(scheduler, mine) == 100
    scheduler.charge({"a": 3})
    assert counter(scheduler, mine) == 100 + 2 * 3
    leave(scheduler, mine)
    join(scheduler, mine)
    assert counter(scheduler, mine) == 106
    scheduler.remove(mine)  # cancelled: nothing comes back
    assert counter(scheduler, mine) == 106


def test_cached_tokens_cost_a_tenth_and_weights_divide(sequence: New, site: MakeSite) -> None:
    scheduler = fair_queue({}, site(a=Tenant(weight=4.0)))
    mine = sequence("a", prompt=100)
    scheduler.add(mine, 0.0)
    join(scheduler, mine, cached=80)
    assert counter(scheduler, mine) == pytest.approx((20 + 0.1 * 80) / 4)
    scheduler.charge({"a": 6})
    assert counter(scheduler, mine) == pytest.approx((28 + 12) / 4)


def test_prices_are_options(sequence: New, site: MakeSite) -> None:
    options = {"input_weight": 3, "output_weight": 0.5, "cached_factor": 0}
    scheduler = fair_queue(options, site())
    mine = sequence("a", prompt=100)
    scheduler.add(mine, 0.0)
    join(scheduler, mine, cached=90)
    scheduler.charge({"a": 4})
    assert counter(scheduler, mine) == 3 * 10 + 0.5 * 4


def test_who_was_away_is_lifted_to_the_least_of_those_who_wait(
    sequence: New, site: MakeSite
) -> None:
    scheduler = fair_queue({}, site())
    for tenant, prompt in (("a", 300), ("b", 500)):
        first, second = sequence(tenant, prompt=prompt), sequence(tenant)
        scheduler.add(first, 0.0)
        scheduler.add(second, 0.0)
        join(scheduler, first)
    newcomer = sequence("c")
    scheduler.add(newcomer, 0.0)
    assert counter(scheduler, newcomer) == 300


def test_with_nobody_waiting_the_lift_is_to_who_waited_last(sequence: New, site: MakeSite) -> None:
    scheduler = fair_queue({}, site())
    first, last = sequence("b", prompt=500), sequence("a", prompt=300)
    for each in (first, last):
        scheduler.add(each, 0.0)
    for each in (first, last):
        join(scheduler, each)
    scheduler.charge({"a": 50})
    newcomer = sequence("c")
    scheduler.add(newcomer, 0.0)
    assert counter(scheduler, newcomer) == 300 + 2 * 50


def test_on_a_tie_whoever_was_served_longest_ago_goes_first(sequence: New, site: MakeSite) -> None:
    """So a slot that is free when a tenant comes back is not for who has just had one."""
    scheduler = fair_queue({}, site())
    first, second = sequence("a"), sequence("a")
    for each in (first, second):
        scheduler.add(each, 0.0)
    join(scheduler, first)
    back = sequence("b")
    scheduler.add(back, 0.0)
    assert counter(scheduler, back) == counter(scheduler, second)
    assert order(scheduler) == [back, second]


def test_nobody_is_lifted_down(sequence: New, site: MakeSite) -> None:
    scheduler = fair_queue({}, site())
    costly, cheap = sequence("a", prompt=900), sequence("b", prompt=5)
    for each in (costly, cheap):
        scheduler.add(each, 0.0)
    for each in (costly, cheap):
        join(scheduler, each)
    again = sequence("a")
    scheduler.add(again, 0.0)
    assert counter(scheduler, again) == 900


def test_a_tenant_held_back_by_its_limit_lends_no_credit(sequence: New, site: MakeSite) -> None:
    """It waits with a counter of 10 while the others have long been served for more."""
    scheduler = fair_queue({}, site(held=Tenant(max_running=1)))
    held, behind = sequence("held"), sequence("held")
    busy = [sequence("busy", prompt=400) for _ in range(3)]
    for each in (held, behind, *busy):
        scheduler.add(each, 0.0)
    for each in (held, *busy[:2]):
        join(scheduler, each)
    newcomer = sequence("new")
    scheduler.add(newcomer, 0.0)
    assert counter(scheduler, newcomer) == 400  # what the last of the others joined at


def test_who_was_preempted_returns_before_every_newcomer(sequence: New, site: MakeSite) -> None:
    scheduler = fair_queue({}, site())
    one, two, three = sequence("a", prompt=500), sequence("a"), sequence("b")
    for each in (one, two, three):
        scheduler.add(each, 0.0)
    for each in (two, one):
        join(scheduler, each)
        leave(scheduler, each)
    assert order(scheduler) == [one, two, three]


def test_victims_are_the_newest_of_the_tenant_served_most(sequence: New, site: MakeSite) -> None:
    scheduler = fair_queue({}, site())
    a1, b1, b2, a2, c1 = (sequence(tenant) for tenant in ("a", "b", "b", "a", "c"))
    running = [a1, b1, b2, a2, c1]
    for each in running:
        scheduler.add(each, 0.0)
        join(scheduler, each)
    scheduler.charge({"a": 30, "b": 20, "c": 60})
    assert list(scheduler.victims(running, b1)) == [c1, a2, a1, b2]
    assert list(scheduler.victims(running, a1)) == [c1, a2]
    assert list(scheduler.victims(running, c1)) == []


def test_no_newcomer_takes_anybodys_place(sequence: New, site: MakeSite) -> None:
    scheduler = fair_queue({}, site())
    mine, newcomer = sequence("a"), sequence("b")
    scheduler.add(mine, 0.0)
    join(scheduler, mine)
    assert list(scheduler.victims([mine], newcomer)) == []


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"output_wieght": 3}, 'did you mean "output_weight"'),
        ({"output_weight": -1}, "scheduler.output_weight = -1"),
        ({"cached_factor": 1.5}, "from 0 to 1"),
    ],
)
def test_options_are_refused_by_name(
    options: dict[str, Any], complaint: str, site: MakeSite
) -> None:
    with pytest.raises(OptionsError, match=complaint):
        fair_queue(options, site())
