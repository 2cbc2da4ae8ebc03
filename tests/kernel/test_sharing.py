"""Blocks that several hold: cached prompts, forked outputs, and who may never see whose."""

from typing import Any

import attrs
import pytest

from plancha.testing.executors import chain


def x(tokens: int) -> list[int]:
    return [32 + i % 90 for i in range(tokens)]


def twice(rig: Any, prompt: list[int], **second: Any) -> tuple[Any, int, int]:
    simulation = rig.chain()
    first = simulation.submit(prompt, 10)
    simulation.run()
    again = simulation.submit(prompt, 10, **second)
    simulation.run()
    assert simulation.outputs[first] == simulation.outputs[again] == chain(prompt, 10)
    return simulation, first, again


@pytest.mark.parametrize(
    ("tokens", "cached"), [(160, 144), (64, 48), (65, 64), (16, 0), (17, 16), (1, 0)]
)
def test_a_prompt_asked_again_computes_at_least_one_token(
    rig: Any, tokens: int, cached: int
) -> None:
    simulation, first, again = twice(rig, x(tokens))
    assert simulation.cached[first] == 0
    assert simulation.cached[again] == cached
    assert simulation.finished[again].prompt_tokens == tokens


def test_another_tenants_prompt_is_never_found(rig: Any) -> None:
    simulation, _, own = twice(rig, x(160), tenant="default")
    assert simulation.cached[own] == 144
    before = len(simulation.plans)
    other = simulation.submit(x(160), 10, tenant="somebody-else")
    simulation.run()
    assert simulation.cached[other] == 0
    cold = rig.chain()
    cold.submit(x(160), 10)
    cold.run()
    assert len(simulation.plans) - before == len(cold.plans)


def test_a_salt_narrows_and_a_public_prefix_widens(rig: Any) -> None:
    simulation = rig.chain()

    def cached(tenant: bytes, public: int) -> int:
        stream = simulation.submit(x(100), 2, namespace=tenant, public_tokens=(public,))
        simulation.run()
        return int(simulation.cached[stream])

    assert cached(b"a", 50) == 0
    assert cached(b"b", 50) == 48  # three whole public blocks
    assert cached(b"b", 50) == 96  # and its own
    assert cached(b"b\x00salt", 50) == 48
    assert cached(b"c", 0) == 0  # who does not declare the prefix is not in the public chain


def test_shared_blocks_are_freed_once_and_never_given_away_too_early(rig: Any) -> None:
    simulation = attrs.evolve(rig, blocks=24).chain()
    prefix = x(48)
    seeded = simulation.submit([*prefix, 40], 1)
    simulation.run()
    assert simulation.finished[seeded].reason == "length"
    one, two = (simulation.submit([*prefix, 50 + i], 40) for i in range(2))
    for _ in range(5):
        simulation.step()
    batch = simulation.planner.batch.running()
    assert batch[0].blocks[:3] == batch[1].blocks[:3]
    simulation.cancel(one)
    simulation.run()
    assert simulation.outputs[two] == chain([*prefix, 51], 40)
    three, four = (simulation.submit([60 + i] * 100, 30) for i in range(2))
    simulation.step()
    held = [block for each in simulation.planner.batch.running() for block in each.blocks]
    assert len(held) == len(set(held))
    simulation.run()
    assert simulation.outputs[three] == chain([60] * 100, 30)
    assert simulation.outputs[four] == chain([61] * 100, 30)


def test_outputs_of_one_prompt_share_its_full_blocks_and_copy_the_last(rig: Any) -> None:
    simulation = rig.chain()
    first = simulation.submit(x(20), 20, n=3)
    simulation.step()
    simulation.step()
    tables = [simulation.planner.sequences[first + i].blocks for i in range(3)]
    assert len({table[0] for table in tables}) == 1
    assert len({table[1] for table in tables}) == 3
    copies = simulation.plans[1].moves
    assert copies.copied_from.tolist() == [tables[0][1]] * 2
    simulation.cancel(first + 1)
    simulation.run()
    for output in (first, first + 2):
        assert simulation.outputs[output] == chain(x(20), 20)
    ends = [simulation.finished[first + i] for i in range(3)]
    assert [end.prompt_tokens for end in ends] == [20, 0, 0]


@pytest.mark.parametrize("tokens", [1, 15, 16, 17, 32, 130])
@pytest.mark.parametrize("blocks", [16, 64])
def test_every_output_of_a_prompt_is_the_undisturbed_one(
    rig: Any, tokens: int, blocks: int
) -> None:
    simulation = attrs.evolve(rig, blocks=blocks).chain()
    first = simulation.submit(x(tokens), 30, n=4)
    simulation.run()
    for output in range(first, first + 4):
        assert simulation.outputs[output] == chain(x(tokens), 30)


def test_outputs_whose_first_is_cancelled_before_it_is_computed_go_on(rig: Any) -> None:
    simulation = rig.chain()
    first = simulation.submit(x(130), 5, n=3)
    simulation.step()
    simulation.cancel(first)
    simulation.run()
    for output in (first + 1, first + 2):
        assert simulation.outputs[output] == chain(x(130), 5)


def test_an_output_that_waits_for_its_prompt_can_be_cancelled(rig: Any) -> None:
    simulation = rig.chain()
    first = simulation.submit(x(130), 5, n=3)
    simulation.step()
    simulation.cancel(first + 2)
    simulation.run()
    assert simulation.finished[first + 2].output_tokens == 0
    assert simulation.outputs[first + 1] == chain(x(130), 5)


def test_the_least_recently_used_prompt_is_given_up_first(rig: Any) -> None:
    simulation = attrs.evolve(rig, blocks=16).chain()

    def cached(byte: int) -> int:
        stream = simulation.submit([byte] * 65, 1)
        simulation.run()
        return int(simulation.cached[stream])

    assert [cached(byte) for byte in (65, 66, 67)] == [0, 0, 0]  # 4 full blocks each
    assert cached(65) == 64  # now the most recent
    assert cached(68) == 0  # takes the place of 66
    assert cached(65) == 64
    assert cached(66) < 64


def test_a_failed_step_empties_the_cache(rig: Any) -> None:
    simulation = rig.chain()
    first = simulation.submit(x(100), 5)
    simulation.run()
    doomed = simulation.submit([33], 5)
    plan = simulation.start()
    assert plan is not None
    simulation._executor.reset()
    simulation.planner.fail(0.0)
    simulation.take_frame()
    assert simulation.finished[doomed].reason == "error"
    again = simulation.submit(x(100), 5)
    simulation.run()
    assert simulation.cached[again] == 0
    assert simulation.outputs[again] == simulation.outputs[first]


def test_a_prompt_whose_first_output_ends_with_it_is_billed_once(rig: Any) -> None:
    simulation = rig.chain()
    first = simulation.submit(x(40), 1, n=3)
    simulation.run()
    billed = [simulation.finished[first + i].prompt_tokens for i in range(3)]
    assert billed == [40, 0, 0]
    assert len({tuple(simulation.outputs[first + i]) for i in range(3)}) == 1


def test_a_prompt_is_billed_once_whichever_of_its_outputs_remains(rig: Any) -> None:
    simulation = rig.chain()
    first = simulation.submit(x(130), 5, n=3)
    simulation.cancel(first)  # before anything was computed
    simulation.run()
    billed = [simulation.finished[first + i].prompt_tokens for i in range(3)]
    assert billed == [0, 130, 0]
    for output in (first + 1, first + 2):
        assert simulation.outputs[output] == chain(x(130), 5)
