"""Who is let in, and the numbers that a refusal names."""

from typing import Any

import attrs
import pytest

from plancha.failure import Failure, RequestFailed
from plancha.sampling import Sampling


def refusal(simulation: Any, prompt: int, max_tokens: int | None) -> Failure:
    with pytest.raises(RequestFailed) as refused:
        simulation.submit([120] * prompt, max_tokens)
    return refused.value.failure


def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers(rig: Any) -> None:
    failure = refusal(rig.chain(), 300, None)
    assert (failure.kind, failure.code) == ("invalid", "context_length_exceeded")
    assert "256" in failure.message and "300" in failure.message


def test_a_full_context_has_no_room_for_a_token(rig: Any) -> None:
    assert refusal(rig.chain(), 256, None).code == "context_length_exceeded"
    assert rig.chain().submit([120] * 255) == 0


@pytest.mark.parametrize("max_tokens", [249, 90_000_000])
def test_too_many_tokens_asked_is_refused_with_the_three_numbers(rig: Any, max_tokens: int) -> None:
    failure = refusal(rig.chain(), 8, max_tokens)
    assert failure.param == "max_tokens"
    for number in ("8", str(max_tokens), "256"):
        assert number in failure.message


def test_the_last_token_that_fits_may_be_asked_for(rig: Any) -> None:
    simulation = rig.script(65)
    stream = simulation.submit([120] * 8, 248)
    simulation.run()
    assert len(simulation.outputs[stream]) == 248


def test_what_the_whole_pool_cannot_hold_is_refused_with_its_blocks(rig: Any) -> None:
    simulation = attrs.evolve(rig, blocks=8).chain()
    for prompt, max_tokens in ((200, None), (200, 1), (100, 100)):
        failure = refusal(simulation, prompt, max_tokens)
        assert "13" in failure.message and "8" in failure.message
        assert failure.code == "kv_pool_exceeded"
    stream = simulation.submit([120] * 10, 5)
    simulation.run()
    assert simulation.finished[stream].reason == "length"


def test_a_request_of_exactly_the_pool_completes(rig: Any) -> None:
    simulation = attrs.evolve(rig, blocks=8).chain()
    stream = simulation.submit([120] * 120, 8)
    simulation.run()
    assert simulation.finished[stream].output_tokens == 8
    assert simulation.planner.preemptions == 0


def test_a_full_queue_refuses_and_empties_again(rig: Any) -> None:
    simulation = attrs.evolve(rig, max_sequences=1, max_waiting=2).chain()
    streams = [simulation.submit([120], 2) for _ in range(1 + 2)]
    assert refusal(simulation, 1, 2).kind == "busy"
    simulation.run()
    assert set(streams) == set(simulation.finished)
    simulation.submit([120], 2)


def test_a_seed_is_kept_and_a_missing_one_is_drawn(rig: Any) -> None:
    simulation = rig.chain()
    seeded = [simulation.submit([120], 2, sampling=Sampling(seed=-5)) for _ in range(2)]
    free = [simulation.submit([120], 2) for _ in range(2)]
    seeds = {stream: simulation.planner.sequences[stream].seed for stream in (*seeded, *free)}
    assert seeds[seeded[0]] == seeds[seeded[1]] == 2**64 - 5
    assert seeds[free[0]] != seeds[free[1]]
