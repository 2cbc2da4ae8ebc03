"""Who joins when the first of the line does not fit, and what is kept free beside others."""

from typing import Any

import attrs

from plancha.contracts import Tenant
from plancha.planning.joining import LONGEST_PASSED_S, MOST_PASSES
from plancha.testing.executors import chain

LARGE = [65] * 180


def x(tokens: int) -> list[int]:
    return [120] * tokens


def beside_a_long_one(rig: Any) -> tuple[Any, int, int]:
    """One that runs for long in 10 of 16 blocks, and one that needs 12 and cannot join."""
    simulation = attrs.evolve(rig, blocks=16, max_batched_tokens=256, max_sequences=4).chain()
    runs = simulation.submit(x(144), 100)
    simulation.step()
    large = simulation.submit(LARGE, 5)
    simulation.step()
    assert simulation.planner.sequences[large].slot is None
    return simulation, runs, large


def test_who_does_not_fit_is_passed_a_bounded_number_of_times(rig: Any) -> None:
    simulation, _, large = beside_a_long_one(rig)
    small = []
    for _ in range(MOST_PASSES + 5):
        small.append(simulation.submit([121], 1))
        simulation.clock.now -= simulation._step_s  # time stands still: only passes count
        simulation.step()
    assert [stream in simulation.finished for stream in small] == (
        [True] * MOST_PASSES + [False] * 5
    )
    simulation.run()
    assert simulation.outputs[large] == chain(LARGE, 5)


def test_who_does_not_fit_is_passed_for_a_bounded_time(rig: Any) -> None:
    simulation, runs, large = beside_a_long_one(rig)
    first = simulation.submit([121], 1)
    simulation.step()
    simulation.clock.advance(LONGEST_PASSED_S)
    second = simulation.submit([121], 1)
    simulation.step()
    assert first in simulation.finished and second not in simulation.finished
    simulation.cancel(runs)
    simulation.step()
    assert simulation.planner.sequences[large].slot is not None
    simulation.run()


def test_a_tenants_limit_holds_back_its_own_and_nobody_else(rig: Any) -> None:
    simulation = rig.chain(tenants={"a": Tenant(max_running=2)})
    a = [simulation.submit(x(5), 30, tenant="a") for _ in range(4)]
    b = [simulation.submit(x(5), 30, tenant="b") for _ in range(3)]
    for _ in range(3):
        simulation.step()
    running = {sequence.stream for sequence in simulation.planner.batch.running()}
    assert running == {*a[:2], *b}
    waiting = [simulation.planner.sequences[stream] for stream in a[2:]]
    assert [sequence.passed for sequence in waiting] == [0, 0]
    simulation.run()
    assert set(simulation.finished) == {*a, *b}


def test_waste_is_the_share_of_reserved_slots_without_a_known_token(rig: Any) -> None:
    simulation = rig.chain()
    simulation.submit(x(20), 30)
    simulation.submit(x(40), 30)
    simulation.step()
    # 20 and 40 prompt tokens and one output each, in 2 and 3 blocks of 16
    assert simulation.planner.load().waste == (32 - 21 + 48 - 41) / 80


def test_one_held_back_by_a_limit_does_not_hold_back_a_better_tier_behind_it(rig: Any) -> None:
    tenants = {"slow": Tenant(tier=1, max_running=1), "gold": Tenant(tier=0)}
    sized = attrs.evolve(rig, blocks=200, context_length=3200)
    simulation = sized.chain(tenants=tenants)
    simulation.submit(x(3000), 5, tenant="slow")
    simulation.submit(x(10), 5, tenant="slow")
    simulation.step()
    gold = simulation.submit([65] * 10, 5, tenant="gold")
    simulation.step()
    assert len(simulation.outputs[gold]) == 1


def test_an_executor_is_told_whose_everything_kept_of_a_sequence_is(rig: Any) -> None:
    simulation = rig.chain()
    for tenant in ("a", "b"):
        simulation.submit([120] * 8, 2, tenant=tenant)
    simulation.step()
    assert [join.namespace for join in simulation.plans[0].joins] == [b"a", b"b"]
