"""Strictness and ageing in virtual time, 20 ms a step: the planner is real, tokens are scripted."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from plancha.contracts import Geometry, Scheduler, Site, Tenant
from plancha.testing.executors import ChainExecutor, chain
from plancha.testing.simulation import Simulation
from plancha_allocators.paged import paged
from plancha_schedulers.fair_queue import fair_queue
from plancha_schedulers.priority_preempt import priority_preempt

MakeRig = Callable[..., Any]

TIERS = {"gold": Tenant(), "silver": Tenant(tier=1), "free": Tenant(tier=2)}


def priority(site: Site) -> Scheduler:
    return priority_preempt({"max_wait_s": 10}, site)


def chained(scheduler: Callable[[Site], Scheduler], *, blocks: int, slots: int) -> Simulation:
    geometry = Geometry(blocks=blocks, context_length=256, vocabulary=128, stop_ids=())
    site = Site(
        max_sequences=slots,
        max_batched_tokens=128,
        max_waiting=100,
        block_size=16,
        model="none",
        vocabulary=128,
        tenants=TIERS,
    )
    return Simulation(ChainExecutor(geometry), site, scheduler, lambda site: paged({}, site))


def x(tokens: int) -> list[int]:
    return [120] * tokens


def test_an_urgent_request_takes_a_slot_within_one_step_and_the_victim_finishes() -> None:
    simulation = chained(priority, blocks=64, slots=2)
    free = [simulation.submit(x(10), 200, tenant="free") for _ in range(2)]
    for _ in range(20):
        simulation.step()
    gold = simulation.submit(x(30), 20, tenant="gold")
    simulation.step()
    assert [join.stream for join in simulation.plans[-1].joins] == [gold]
    assert simulation.planner.sequences[free[0]].slot is not None  # the leader stays
    assert simulation.planner.sequences[free[1]].preemptions == 1
    simulation.run()
    assert simulation.outputs[gold] == chain(x(30), 20)
    for stream in free:
        assert simulation.outputs[stream] == chain(x(10), 200)
    assert simulation.planner.preemptions == 1


def test_nobody_is_preempted_for_an_urgent_request_that_could_still_not_join() -> None:
    simulation = chained(priority, blocks=16, slots=3)
    first = simulation.submit(x(90), 6, tenant="free")  # 6 blocks at its end
    second = simulation.submit(x(30), 90, tenant="free")
    for _ in range(3):
        simulation.step()
    # 10 blocks are not the leader's, but 1 % of the pool and 11 for this prompt are more.
    gold = simulation.submit(x(170), 4, tenant="gold")
    simulation.step()
    assert simulation.planner.preemptions == 0
    simulation.run()
    assert simulation.outputs[gold] == chain(x(170), 4)
    assert simulation.outputs[first] == chain(x(90), 6)
    assert simulation.outputs[second] == chain(x(30), 90)


@pytest.mark.parametrize("scheduler", [priority, lambda site: fair_queue({}, site)])
def test_whoever_lost_its_place_joins_next_of_its_tier(
    scheduler: Callable[[Site], Scheduler],
) -> None:
    simulation = chained(scheduler, blocks=6, slots=4)
    first = simulation.submit(x(32), 40, tenant="free")
    second = simulation.submit([121] * 40, 18, tenant="free")
    while not simulation.planner.preemptions:
        simulation.step()
    assert len(simulation.outputs[second]) == 9  # of 18; the 49th token needs a fourth block
    newcomers = [simulation.submit([97 + i] * 8, 4, tenant="free") for i in range(8)]
    order: list[int] = []
    preemptions = 0
    while simulation.planner.sequences:
        if second in simulation.planner.sequences:
            preemptions = simulation.planner.sequences[second].preemptions
        simulation.step()
        order += [join.stream for join in simulation.plans[-1].joins]
    assert order[0] == second
    assert sorted(order[1:]) == newcomers
    assert preemptions <= 3
    assert simulation.outputs[first] == chain(x(32), 40)
    assert simulation.outputs[second] == chain([121] * 40, 18)


def test_whoever_lost_its_place_does_not_go_before_a_better_tier(rig: MakeRig) -> None:
    worker = rig(priority, max_sequences=2, tenants=TIERS)
    worker.post("free", 10, 200)
    victim = worker.post("free", 10, 200)
    worker.step()
    for _ in range(4):
        worker.post("gold", 10, 30)
    while worker.alive("gold"):
        worker.step()
        if worker.alive("gold"):
            assert worker.simulation.planner.sequences[victim].slot is None
    worker.step()
    assert worker.simulation.planner.sequences[victim].slot is not None


def saturate(worker: Any, weights: dict[str, int]) -> None:
    """Every tenant of the best tier has more than the machine holds."""
    for tenant in weights:
        while worker.alive(tenant) < 12:
            worker.post(tenant, 20, 30)


def test_under_a_better_tier_for_a_minute_the_first_token_comes_by_the_bound(
    rig: MakeRig,
) -> None:
    """And inside the better tier the shares over that minute are within 10 % of the weights."""
    weights = {"nine": 9, "one": 1}
    tenants = {name: Tenant(weight=weight) for name, weight in weights.items()}
    worker = rig(priority, max_sequences=4, tenants={**tenants, "free": Tenant(tier=1)})
    saturate(worker, weights)
    free = worker.post("free", 20, 30)
    first_token_s = None
    while worker.simulation.clock() < 60:
        saturate(worker, weights)
        worker.step()
        if first_token_s is None and worker.simulation.outputs[free]:
            first_token_s = worker.simulation.clock()
    # Before the bound it had no business there; then the next slot of four comes free in 30 steps.
    assert first_token_s is not None and 10 <= first_token_s <= 10 + 31 * 0.02
    assert worker.simulation.finished[free].reason == "length"
    total = worker.served("nine") + worker.served("one")
    assert worker.served("nine") / total == pytest.approx(0.9, rel=0.1)
    assert worker.served("one") / total == pytest.approx(0.1, rel=0.1)


def test_a_flood_of_the_aged_takes_one_slot_a_tier_and_no_more(rig: MakeRig) -> None:
    worker = rig(priority, max_sequences=6, tenants=TIERS)
    for tenant in ("silver", "free"):
        for _ in range(300):
            worker.post(tenant, 20, 30)
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for step in range(3000):  # a minute
        saturate(worker, {"gold": 1})
        worker.step()
        if step > 600:  # everybody below gold is past its bound
            for tenant in TIERS:
                running[tenant] += worker.running(tenant)
                most[tenant] = max(most[tenant], worker.running(tenant))
    assert (most["silver"], most["free"]) == (1, 1)
    # With its slot taken again as soon as it comes free: nearly a sixth of the time each.
    assert running["free"] / sum(running.values()) == pytest.approx(1 / 6, rel=0.1)
    assert running["silver"] / sum(running.values()) == pytest.approx(1 / 6, rel=0.1)
    assert worker.simulation.planner.preemptions == 0


def test_an_aged_request_is_computed_beside_a_better_tier_that_fills_every_steps_budget(
    rig: MakeRig,
) -> None:
    """Gold asks for nothing but prompts, as long as the step's whole budget."""
    worker = rig(priority, max_sequences=4, max_batched_tokens=64, tenants=TIERS)
    free = worker.post("free", 60, 2)
    while worker.simulation.clock() < 60 and free not in worker.simulation.finished:
        while worker.alive("gold") < 8:
            worker.post("gold", 64, 1)
        worker.step()
    assert free in worker.simulation.finished


def test_an_urgent_request_takes_a_slot_although_somebody_aged_goes_before_it(
    rig: MakeRig,
) -> None:
    """All slots are held by the worst tier, and one more of it has waited for too long."""
    worker = rig(priority, max_sequences=2, tenants=TIERS)
    for _ in range(3):
        worker.post("free", 10, 240)
    worker.post("gold", 10, 1)
    for _ in range(4):
        worker.step()
    worker.simulation.clock.advance(60)
    gold = worker.post("gold", 10, 1)
    worker.step()
    assert gold in worker.joined


def test_an_aged_one_whose_reader_lags_holds_up_nobody_of_its_tier(rig: MakeRig) -> None:
    worker = rig(priority, max_sequences=2, tenants=TIERS)
    slow, other = worker.post("free", 20, 30), worker.post("free", 20, 30)
    while not worker.simulation.outputs[slow]:
        saturate(worker, {"gold": 1})
        worker.step()
    worker.simulation.pause(slow)
    began_s = worker.simulation.clock()
    while not worker.simulation.outputs[other] and worker.simulation.clock() < began_s + 60:
        saturate(worker, {"gold": 1})
        worker.step()
    assert worker.simulation.clock() <= began_s + 31 * 0.02  # the next slot of two
