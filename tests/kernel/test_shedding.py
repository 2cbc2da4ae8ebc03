"""Targets for the first token: who is refused or shed to keep them, and who never is."""

from typing import Any

import attrs
import pytest

from plancha.contracts import Tenant
from plancha.failure import Failure, RequestFailed
from plancha.messages import Reload
from plancha.overload.pace import MEMORY_S, Pace
from plancha.overload.shedding import MARGIN
from plancha_schedulers.fair_queue import fair_queue
from plancha_schedulers.fcfs import fcfs
from plancha_schedulers.priority_preempt import priority_preempt

TENANTS = {"gold": Tenant(tier=0), "bulk": Tenant(tier=1), "rest": Tenant(tier=2)}
OUTPUT = 20
STEP_S = 0.02
PACE = 2 / (OUTPUT * STEP_S)  # two slots, each free again after 20 steps: 5 joins a second


def worker(rig: Any, scheduler: Any, targets: dict[int, float], **fields: Any) -> Any:
    small = attrs.evolve(rig, max_sequences=2, scheduler=lambda site: scheduler({}, site))
    return small.chain(ttft_targets_s=targets, **{"tenants": dict(TENANTS), **fields})


def attempt(simulation: Any, tenant: str) -> int | Failure:
    try:
        stream: int = simulation.submit([120] * 8, OUTPUT, tenant=tenant)
        return stream
    except RequestFailed as refused:
        return refused.failure


def refusal(simulation: Any, tenant: str) -> Failure:
    """The first one, after as many acceptances as it takes."""
    for _ in range(50):
        failure = attempt(simulation, tenant)
        if isinstance(failure, Failure):
            assert (failure.kind, failure.code) == ("busy", "overloaded")
            assert failure.retry_after_s is not None
            return failure
    raise AssertionError(f"fifty of {tenant} were accepted")


def waiting(simulation: Any, tenant: str) -> int:
    sequences = simulation.planner.sequences.values()
    return sum(each.tenant == tenant and not each.joined_once for each in sequences)


def flood(simulation: Any, seconds: float, *tenants: str) -> dict[str, list[int]]:
    """A request of each tenant before every step; the streams of those accepted."""
    accepted: dict[str, list[int]] = {tenant: [] for tenant in tenants}
    for _ in range(round(seconds / STEP_S)):
        for tenant in tenants:
            stream = attempt(simulation, tenant)
            if isinstance(stream, int):
                accepted[tenant].append(stream)
        simulation.step()
    return accepted


def shed(simulation: Any) -> set[int]:
    ends = simulation.finished.items()
    return {stream for stream, end in ends if end.failure and end.failure.code == "overloaded"}


def test_an_idle_server_refuses_nobody_however_long_the_prompt(rig: Any) -> None:
    simulation = worker(rig, fair_queue, {0: 0.001})
    for _ in range(5):
        simulation.submit([120] * 200, 5, tenant="gold")
        simulation.run()


def test_before_anything_was_measured_as_many_may_wait_as_may_run(rig: Any) -> None:
    simulation = worker(rig, fair_queue, {0: 1.0})
    for _ in range(2 + 2):
        assert isinstance(attempt(simulation, "gold"), int)
    assert refusal(simulation, "gold").retry_after_s == 1


def test_from_the_first_step_on_it_is_assumed_how_soon_a_slot_becomes_free(rig: Any) -> None:
    target_s, tokens = 2.0, 40
    small = attrs.evolve(rig, max_sequences=2)
    tenants = dict(TENANTS)
    simulation = small.simulate(Priced(small), tenants=tenants, ttft_targets_s={0: target_s})
    for _ in range(2):
        simulation.submit([120] * 8, tokens, tenant="gold")
    simulation.step()  # of 16 tokens: 16 ms
    free_s = (tokens - 1) * 0.016 / 2
    most = int(MARGIN * target_s / free_s)
    accepted = 0
    while isinstance(attempt(simulation, "gold"), int):
        accepted += 1
    assert 2 <= most - 1 <= accepted <= most + 1


def test_whoever_would_be_the_next_is_not_refused_for_an_assumption(rig: Any) -> None:
    simulation = worker(rig, priority_preempt, {0: 0.001})
    for _ in range(4):
        attempt(simulation, "bulk")
    simulation.step()
    for _ in range(20):
        assert isinstance(attempt(simulation, "gold"), int)
        simulation.step()
        simulation.run()


@pytest.mark.parametrize(("targets", "reopens"), [({0: 4.0}, True), ({}, True), ({0: 1.0}, False)])
def test_a_target_that_is_raised_or_taken_back_keeps_nobody_out(
    rig: Any, targets: dict[int, float], reopens: bool
) -> None:
    simulation = worker(rig, fair_queue, {0: 2.0})
    flood(simulation, 3.0, "rest")
    while not shed(simulation):
        attempt(simulation, "gold")
        simulation.step()
    refusal(simulation, "rest")
    site = simulation.planner.overload.shedding.site
    site.reload(Reload(dict(TENANTS), 1000, 0.0, targets))
    assert isinstance(attempt(simulation, "rest"), int) == reopens


@pytest.mark.parametrize("scheduler", [fcfs, fair_queue, priority_preempt])
def test_a_flooded_tier_takes_no_more_than_its_target_has_room_for(
    rig: Any, scheduler: Any
) -> None:
    target_s = 4.0
    simulation = worker(rig, scheduler, {0: target_s})
    flood(simulation, 20.0, "gold")  # fifty requests a second for five joins a second
    assert refusal(simulation, "gold").retry_after_s == 1  # the line is shorter in a moment
    assert 0.4 * target_s * PACE <= waiting(simulation, "gold") <= 0.6 * target_s * PACE
    assert {end.reason for end in simulation.finished.values()} == {"length"}


def test_once_the_flood_is_over_everybody_is_let_in_again(rig: Any) -> None:
    simulation = worker(rig, fair_queue, {0: 1.0})
    flood(simulation, 10.0, "gold")
    refusal(simulation, "gold")
    simulation.run()
    for _ in range(3):
        assert isinstance(attempt(simulation, "gold"), int)


def test_a_tier_without_a_target_is_never_shed_for_its_own_sake(rig: Any) -> None:
    simulation = worker(rig, fair_queue, {0: 1.0})
    accepted = flood(simulation, 5.0, "bulk")
    assert len(accepted["bulk"]) == 250


@pytest.mark.parametrize("scheduler", [fcfs, fair_queue])
def test_who_waits_in_the_worst_tier_goes_first_where_the_scheduler_knows_no_tiers(
    rig: Any, scheduler: Any
) -> None:
    simulation = worker(rig, scheduler, {0: 2.0})
    flood(simulation, 3.0, "bulk", "rest")
    assert waiting(simulation, "bulk") > 100
    gold = []
    for step in range(800):
        if step % 25 == 0:  # two requests a second, of the five that can be served
            stream = attempt(simulation, "gold")
            gold.append(stream)
        simulation.step()
    assert all(isinstance(stream, int) for stream in gold)
    gone = shed(simulation)
    assert gone and not gone & set(gold)
    assert waiting(simulation, "rest") == 0  # the worst of all
    assert all(simulation.outputs[stream] == [] for stream in gone)
    simulation.run()
    assert {simulation.finished[stream].reason for stream in gold} == {"length"}


def test_an_answer_that_has_begun_is_not_shed(rig: Any) -> None:
    simulation = attrs.evolve(rig, max_sequences=1).chain(tenants=dict(TENANTS))
    begun = simulation.submit([120] * 100, 5, tenant="rest", n=3)  # two steps for the prompt
    waits = simulation.submit([121] * 8, 5, tenant="rest", n=3)
    simulation.step()
    simulation.planner.shed((2,), simulation.clock())
    simulation.take_frame()
    assert shed(simulation) == set(range(waits, waits + 3))
    simulation.run()
    ends = [simulation.finished[stream].reason for stream in range(begun, begun + 3)]
    assert ends == ["length"] * 3


def test_a_tier_that_was_shed_is_closed_until_the_better_one_is_through(rig: Any) -> None:
    simulation = worker(rig, fair_queue, {0: 2.0})
    flood(simulation, 3.0, "rest")
    while not shed(simulation):
        attempt(simulation, "gold")
        simulation.step()
    assert refusal(simulation, "rest").retry_after_s == 2
    simulation.clock.advance(2.0)
    assert isinstance(attempt(simulation, "rest"), int)


def test_where_the_scheduler_orders_by_tier_waiting_ones_are_left_alone(rig: Any) -> None:
    simulation = worker(rig, priority_preempt, {0: 2.0})
    flood(simulation, 3.0, "bulk")
    gold = []
    for step in range(800):
        if step % 25 == 0:
            gold.append(attempt(simulation, "gold"))
        simulation.step()
    assert all(isinstance(stream, int) for stream in gold)
    assert not shed(simulation)


def test_when_a_better_tier_is_refused_nobody_of_a_worse_one_is_let_in(rig: Any) -> None:
    simulation = worker(rig, priority_preempt, {0: 2.0, 1: 50.0})
    flood(simulation, 10.0, "gold")
    refusal(simulation, "gold")
    refusal(simulation, "bulk")
    refusal(simulation, "rest")


def test_a_tenants_flood_is_not_held_against_another_of_its_tier(rig: Any) -> None:
    tenants = {**TENANTS, "guest": Tenant(tier=0)}
    simulation = worker(rig, fair_queue, {0: 4.0}, tenants=tenants)
    flood(simulation, 10.0, "gold")
    guests = []
    for step in range(800):
        attempt(simulation, "gold")
        if step % 50 == 0:
            guests.append(attempt(simulation, "guest"))
        simulation.step()
    assert all(isinstance(stream, int) for stream in guests)


def test_a_long_prompt_ahead_counts_by_what_computing_it_costs(rig: Any) -> None:
    long = attrs.evolve(
        rig, blocks=2000, context_length=16_000, max_sequences=8, max_batched_tokens=64
    )
    simulation = long.simulate(Priced(long), tenants=dict(TENANTS), ttft_targets_s={0: 2.0})
    for _ in range(10):  # learn the cost: 64 tokens take 0.064 s
        simulation.submit([120] * 500, 3, tenant="rest")
        simulation.run()
    simulation.submit([121] * 10_000, 3, tenant="gold")  # ten seconds
    simulation.step()
    assert isinstance(attempt(simulation, "bulk"), int)  # which has no target
    failure = refusal(simulation, "gold")
    assert failure.retry_after_s is not None and 8 <= failure.retry_after_s <= 10


class Priced:
    """Says that every computed token took a millisecond."""

    def __init__(self, rig: Any) -> None:
        from plancha.testing.executors import ScriptExecutor

        self._inner = ScriptExecutor(lambda prompt: (65,), rig.geometry, rig.block_size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def step(self, plan: Any) -> Any:
        done = self._inner.step(plan)
        return attrs.evolve(done, seconds=0.001 * int(plan.counts.sum()))


def test_a_pace_is_joins_per_second_of_waiting_and_fades() -> None:
    pace = Pace()
    assert pace.per_s([0], 0.0) == float("inf")
    for second in range(1, 101):
        pace.observe(1.0, {0: 3, 1: 1}, float(second))
    assert pace.per_s([0], 100.0) == pytest.approx(3, rel=0.05)
    assert pace.per_s([0, 1], 100.0) == pytest.approx(4, rel=0.05)
    assert pace.per_s(None, 100.0) == pytest.approx(4, rel=0.05)
    assert pace.per_s([2], 100.0) == pytest.approx(1 / MEMORY_S, rel=0.05)
    assert pace.per_s([2], 100.0 + 5 * MEMORY_S) > 5


def test_what_is_assumed_of_a_pace_counts_as_one_join_and_is_what_remains() -> None:
    pace = Pace()
    assert pace.per_s([0], 0.0, 0.5) == 2
    pace.observe(1.0, {0: 3}, 1.0)
    assert pace.per_s([0], 1.0, 0.5) == (3 + 1) / (1 + 0.5)
    assert pace.per_s([0], 1.0 + 9 * MEMORY_S, 0.5) == pytest.approx(2, rel=0.01)
