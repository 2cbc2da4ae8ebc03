"""Victims that wait on the host: what is moved, when it is not worth it, and what comes back."""

from typing import Any

import attrs
import pytest

from plancha.contracts import Eviction, LoadError, Site
from plancha.testing.executors import chain
from plancha_allocators.paged import Paged
from plancha_allocators.paged_swap import PagedSwap, paged_swap


def x(tokens: int, byte: int = 120) -> list[int]:
    return [byte] * tokens


def swap_of(site: Site) -> PagedSwap:
    geometry = site.loaded()
    return PagedSwap(Paged(geometry.blocks, site.block_size), geometry.host_blocks, site.block_size)


def test_without_host_memory_the_start_fails_and_says_what_to_do(rig: Any) -> None:
    with pytest.raises(LoadError, match="swap_memory"):
        attrs.evolve(rig, allocator=lambda site: paged_swap({}, site)).chain()


def swapping(rig: Any, **changes: Any) -> Any:
    """Copies cost nothing, recomputing does: every victim would rather be moved."""
    rig = attrs.evolve(rig, allocator=swap_of, **changes)
    simulation = rig.chain(inter_token_target_s=10.0)
    for tokens in (10, 200, 40, 90, 150, 20, 60, 120, 30, 70):
        simulation.planner.cost.observe(tokens, tokens * tokens // 2, 0.01 + tokens * 1e-3)
    return simulation


@pytest.mark.parametrize(("host_blocks", "swaps"), [(8, True), (2, False), (0, False)])
def test_answers_are_the_same_whether_victims_move_or_are_recomputed(
    rig: Any, host_blocks: int, swaps: bool
) -> None:
    simulation = swapping(rig, blocks=12, host_blocks=host_blocks)
    streams = [simulation.submit(x(48, 60 + i), 96) for i in range(2)]
    simulation.run()
    for i, stream in enumerate(streams):
        assert simulation.outputs[stream] == chain(x(48, 60 + i), 96)
    kinds = simulation.planner.room.preemptions
    assert (kinds[Eviction.SWAPPED] > 0) is swaps
    assert (kinds[Eviction.RECOMPUTE] > 0) is not swaps
    stats = simulation.allocator.stats()
    assert (stats.available, stats.host_free) == (12, host_blocks)


def test_a_swapped_sequence_returns_without_computing_anything_again(rig: Any) -> None:
    simulation = swapping(rig, blocks=12, host_blocks=12)
    for i in range(2):
        simulation.submit(x(48, 60 + i), 96)
    simulation.run()
    computed = sum(int(plan.counts.sum()) for plan in simulation.plans)
    assert computed == 2 * (48 + 96 - 1)  # the last token's K and V are never needed
    moved_out = sum(plan.moves.out_blocks.size for plan in simulation.plans)
    moved_in = sum(plan.moves.in_blocks.size for plan in simulation.plans)
    assert moved_out == moved_in > 0


def test_when_copying_is_dearer_the_victim_is_recomputed(rig: Any) -> None:
    simulation = swapping(rig, blocks=12, host_blocks=12, block_copy_s=10.0)
    for i in range(2):
        simulation.submit(x(48, 60 + i), 96)
    simulation.run()
    assert simulation.planner.room.preemptions[Eviction.SWAPPED] == 0


def test_a_cancelled_one_gives_its_host_blocks_back(rig: Any) -> None:
    simulation = swapping(rig, blocks=12, host_blocks=12)
    streams = [simulation.submit(x(48, 60 + i), 96) for i in range(2)]
    while not simulation.planner.preemptions:
        simulation.step()
    assert simulation.allocator.stats().host_free < 12
    simulation.cancel(streams[1])
    assert simulation.allocator.stats().host_free == 12
    simulation.run()
    assert simulation.outputs[streams[0]] == chain(x(48, 60), 96)


def test_host_copies_outlive_a_failed_step_but_those_it_was_to_make_do_not(rig: Any) -> None:
    simulation = swapping(rig, blocks=12, host_blocks=12)
    streams = [simulation.submit(x(48, 60 + i), 96) for i in range(2)]
    while not simulation.planner.preemptions:
        plan = simulation.start()
        if simulation.planner.preemptions:
            break
        simulation.commit(plan)
    # The plan in flight is the one with the copies, and it fails before it made them.
    assert plan.moves.out_blocks.size > 0
    simulation._executor.reset()
    simulation.planner.fail(0.0)
    simulation.take_frame()
    simulation.run()
    assert simulation.finished[streams[0]].reason == "error"
    assert simulation.outputs[streams[1]] == chain(x(48, 61), 96)

    simulation = swapping(rig, blocks=12, host_blocks=12)
    streams = [simulation.submit(x(48, 60 + i), 96) for i in range(2)]
    while not simulation.planner.preemptions:
        simulation.step()
    assert simulation.start() is not None
    simulation._executor.reset()
    simulation.planner.fail(0.0)
    simulation.take_frame()
    replayed = len(simulation.plans)
    simulation.run()
    assert simulation.outputs[streams[1]] == chain(x(48, 61), 96)
    moved = sum(plan.moves.in_blocks.size for plan in simulation.plans[replayed:])
    assert moved > 0
