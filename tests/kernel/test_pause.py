"""Readers that lag: their sequences step aside, and go on when they are back."""

from typing import Any

import attrs
import pytest

from plancha.contracts import Eviction, Site, Tenant
from plancha.testing.executors import chain
from plancha_allocators.contiguous import contiguous
from plancha_allocators.paged import Paged, paged
from plancha_schedulers.fair_queue import fair_queue


def x(tokens: int, byte: int = 120) -> list[int]:
    return [byte] * tokens


def without_cache(site: Site) -> Paged:
    return paged({"prefix_cache": False}, site)


def computed(simulation: Any) -> int:
    return sum(int(plan.counts.sum()) for plan in simulation.plans)


def test_a_paused_sequence_gets_no_token_and_goes_on_without_recomputing(rig: Any) -> None:
    simulation = attrs.evolve(rig, allocator=without_cache).chain()
    stream = simulation.submit(x(40), 30)
    for _ in range(10):
        simulation.step()
    simulation.pause(stream)
    got = len(simulation.outputs[stream])
    assert not simulation.step()
    assert len(simulation.outputs[stream]) == got
    assert simulation.planner.sequences[stream].slot is None
    simulation.resume(stream)
    simulation.run()
    assert simulation.outputs[stream] == chain(x(40), 30)
    assert computed(simulation) == 40 + 29  # the last token's K and V are never needed
    assert simulation.planner.preemptions == 0


def test_the_token_of_the_step_in_flight_still_comes(rig: Any) -> None:
    simulation = rig.chain()
    stream = simulation.submit(x(20), 30)
    simulation.step()
    plan = simulation.start()
    simulation.pause(stream)
    simulation.commit(plan)
    assert len(simulation.outputs[stream]) == 2
    assert not simulation.step()


def test_a_prompt_goes_on_where_it_was_paused(rig: Any) -> None:
    simulation = attrs.evolve(rig, allocator=without_cache).chain()
    stream = simulation.submit(x(150), 2)
    simulation.step()
    simulation.pause(stream)
    simulation.step()
    simulation.resume(stream)
    simulation.run()
    assert [plan.starts.tolist() for plan in simulation.plans] == [[0], [64], [128], [150]]
    assert simulation.outputs[stream] == chain(x(150), 2)


def test_its_slot_is_free_for_others(rig: Any) -> None:
    simulation = attrs.evolve(rig, max_sequences=1).chain()
    first, second = simulation.submit(x(20), 30), simulation.submit(x(20, 65), 5)
    for _ in range(3):
        simulation.step()
    assert not simulation.outputs[second]
    simulation.pause(first)
    for _ in range(5):
        simulation.step()
    assert simulation.outputs[second] == chain(x(20, 65), 5)


def test_its_blocks_go_to_a_newcomer_that_needs_them(rig: Any) -> None:
    simulation = attrs.evolve(rig, blocks=12, allocator=without_cache).chain()
    slow = simulation.submit(x(100), 40)
    while len(simulation.outputs[slow]) < 5:
        simulation.step()
    simulation.pause(slow)
    newcomer = simulation.submit(x(120, 65), 10)
    for _ in range(12):
        simulation.step()
    assert simulation.outputs[newcomer] == chain(x(120, 65), 10)
    assert simulation.planner.sequences[slow].preemptions == 0  # no protection is earned by it
    assert not simulation.planner.sequences[slow].blocks
    simulation.resume(slow)
    simulation.run()
    assert simulation.outputs[slow] == chain(x(100), 40)


def test_its_blocks_go_before_those_of_anybody_who_runs(rig: Any) -> None:
    simulation = attrs.evolve(rig, blocks=12, allocator=without_cache).chain()
    slow = simulation.submit(x(40), 60)
    old, young = simulation.submit(x(40, 65), 40), simulation.submit(x(40, 66), 40)
    simulation.step()
    simulation.step()
    simulation.step()
    simulation.pause(slow)
    while {old, young} - set(simulation.finished):
        simulation.step()
    assert simulation.planner.preemptions == 1  # of 12 blocks the two need 5 each in the end
    assert simulation.planner.sequences[slow].preemptions == 0
    simulation.resume(slow)
    simulation.run()


def test_a_reader_that_is_back_goes_before_newcomers(rig: Any) -> None:
    simulation = attrs.evolve(
        rig, max_sequences=1, scheduler=lambda site: fair_queue({}, site)
    ).chain()
    slow = simulation.submit(x(20), 10)
    simulation.step()
    simulation.pause(slow)
    running = simulation.submit(x(20, 65), 3)
    simulation.step()
    waiting = simulation.submit(x(20, 66), 3, tenant="other")
    simulation.resume(slow)
    while slow not in simulation.finished:
        simulation.step()
    assert running in simulation.finished
    assert not simulation.outputs[waiting]


def test_whoever_waits_is_passed_while_paused_and_keeps_its_place(rig: Any) -> None:
    simulation = attrs.evolve(rig, max_sequences=1).chain()
    running = simulation.submit(x(20), 3)
    simulation.step()
    first, second = simulation.submit(x(20, 65), 3), simulation.submit(x(20, 66), 3)
    simulation.pause(first)
    while running not in simulation.finished:
        simulation.step()
    simulation.step()
    assert simulation.outputs[second] and not simulation.outputs[first]
    simulation.resume(first)
    simulation.run()
    assert simulation.outputs[first] == chain(x(20, 65), 3)


@pytest.mark.parametrize("in_line", [False, True])
def test_a_paused_one_can_be_cancelled_and_gives_everything_back(rig: Any, in_line: bool) -> None:
    simulation = attrs.evolve(rig, max_sequences=1, allocator=without_cache).chain()
    running = simulation.submit(x(20), 30)
    stream = simulation.submit(x(20, 65), 30) if in_line else running
    for _ in range(4):
        simulation.step()
    simulation.pause(stream)
    simulation.step()
    simulation.cancel(stream)
    assert simulation.finished[stream].reason == "cancelled"
    assert simulation.finished[stream].output_tokens == (0 if in_line else 4)
    simulation.cancel(running)
    assert simulation.allocator.stats().free == 64


def test_twice_is_once_and_unknown_streams_are_nobody(rig: Any) -> None:
    simulation = rig.chain()
    stream = simulation.submit(x(20), 5)
    simulation.step()
    for _ in range(2):
        simulation.pause(stream)
        simulation.pause(99)
    simulation.step()
    for _ in range(2):
        simulation.resume(stream)
        simulation.resume(99)
    simulation.run()
    assert simulation.outputs[stream] == chain(x(20), 5)


def test_pausing_and_resuming_between_two_steps_changes_nothing(rig: Any) -> None:
    simulation = rig.chain()
    stream = simulation.submit(x(20), 5)
    simulation.step()
    simulation.pause(stream)
    simulation.resume(stream)
    simulation.run()
    assert [plan.joins != () for plan in simulation.plans] == [True, False, False, False, False]


def test_a_failed_step_costs_it_its_blocks_and_not_its_answer(rig: Any) -> None:
    simulation = attrs.evolve(rig, allocator=without_cache).chain()
    slow, other = simulation.submit(x(40), 10), simulation.submit(x(40, 65), 10)
    for _ in range(3):
        simulation.step()
    simulation.pause(slow)
    simulation.step()
    assert simulation.start() is not None
    simulation._executor.reset()
    simulation.planner.fail(simulation.clock())
    simulation.take_frame()
    assert simulation.finished[other].reason == "error"
    assert simulation.allocator.stats().free == 64
    simulation.resume(slow)
    simulation.run()
    assert simulation.outputs[slow] == chain(x(40), 10)


def test_a_slab_is_kept_and_taken_like_blocks(rig: Any) -> None:
    sized = attrs.evolve(rig, blocks=32, allocator=lambda site: contiguous({}, site))  # two slabs
    simulation = sized.chain()
    slow = simulation.submit(x(40), 10)
    simulation.step()
    simulation.pause(slow)
    others = [simulation.submit(x(20, 65 + i), 10) for i in range(2)]
    simulation.step()
    assert all(simulation.outputs[other] for other in others)
    assert simulation.planner.room.preemptions == {Eviction.RECOMPUTE: 1}
    simulation.resume(slow)
    simulation.run()
    assert simulation.outputs[slow] == chain(x(40), 10)


def test_it_counts_neither_as_running_nor_as_waiting(rig: Any) -> None:
    simulation = rig.chain(tenants={"a": Tenant(max_running=1)})
    slow = simulation.submit(x(20), 30, tenant="a")
    simulation.step()
    simulation.pause(slow)
    other = simulation.submit(x(20, 65), 2, tenant="a")
    simulation.step()
    assert simulation.outputs[other]
    load = simulation.planner.load()
    assert (load.running, load.waiting) == (1, 0)
