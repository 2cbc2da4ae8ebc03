"""What a step is made of, on executors whose every token is foretold."""

import random
from typing import Any

import attrs
import numpy as np
import pytest

from plancha.failure import RequestFailed
from plancha.sampling import Sampling
from plancha.testing.executors import chain

EOS = 257


def x(tokens: int) -> list[int]:
    return [120] * tokens


@pytest.mark.parametrize("budget", [24, 64, 256])
def test_any_prompt_length_and_any_chunk_gives_the_same_first_token(rig: Any, budget: int) -> None:
    lengths = [1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 255]
    sized = attrs.evolve(rig, max_batched_tokens=budget)
    for length in lengths:
        alone = sized.chain()
        stream = alone.submit(x(length), 1)
        alone.run()
        assert alone.outputs[stream] == chain(x(length), 1)
        assert len(alone.plans) == -(-length // budget)
        assert alone.allocator.stats().available == 64
    together = sized.chain()
    streams = [together.submit(x(length), 1) for length in lengths]
    together.run()
    for stream, length in zip(streams, lengths, strict=True):
        assert together.outputs[stream] == chain(x(length), 1)


def test_no_step_exceeds_the_token_budget(rig: Any) -> None:
    simulation = rig.chain()
    for length in (200, 3, 90, 130, 1, 64):
        simulation.submit(x(length), 20)
    simulation.run()
    assert max(int(plan.counts.sum()) for plan in simulation.plans) == 64


def test_newcomers_of_one_token_do_not_swell_a_step_beyond_its_budget(rig: Any) -> None:
    simulation = attrs.evolve(rig, max_batched_tokens=24).chain()
    streams = [simulation.submit(x(100), 3), *(simulation.submit([65 + i], 3) for i in range(7))]
    while not all(stream in simulation.finished for stream in streams):
        simulation.step()
    assert max(int(plan.counts.sum()) for plan in simulation.plans) == 24


def test_four_cold_prompts_are_soon_all_decoding(rig: Any) -> None:
    simulation = attrs.evolve(rig, max_sequences=4).chain()
    streams = [simulation.submit(x(130), 100) for _ in range(4)]
    for _ in range(-(-4 * 130 // 64) + 4):
        simulation.step()
    assert all(simulation.outputs[stream] for stream in streams)
    assert simulation.plans[-1].samples.sum() == 4


def test_a_stream_of_new_prompts_does_not_starve_the_running(rig: Any) -> None:
    simulation = attrs.evolve(rig, max_sequences=32).chain()
    running = [simulation.submit(x(4), 220) for _ in range(4)]
    simulation.step()
    newcomers = []
    for _ in range(200):
        newcomers.append(simulation.submit(x(64), 1))
        before = [len(simulation.outputs[stream]) for stream in running]
        simulation.step()
        assert [len(simulation.outputs[stream]) for stream in running] == [n + 1 for n in before]
    assert sum(stream in simulation.finished for stream in newcomers) > 100


def test_slots_and_blocks_are_recounted_each_step(rig: Any) -> None:
    simulation = attrs.evolve(rig, max_sequences=2).chain()
    first, second, third = (simulation.submit(x(8), 50) for _ in range(3))
    simulation.step()
    assert simulation.outputs[third] == []
    simulation.cancel(first)
    simulation.step()
    assert len(simulation.outputs[third]) == 1
    assert len(simulation.outputs[second]) == 2


def test_the_watermark_is_kept_beside_others_and_waived_alone(rig: Any) -> None:
    sized = attrs.evolve(rig, blocks=200, context_length=3200, max_batched_tokens=4000)
    alone = sized.chain()
    alone.submit(x(3199), 1)  # all 200 blocks
    assert alone.step()
    beside = sized.chain()
    beside.submit(x(16), 50)  # one block, then a second
    late = beside.submit(x(3150), 5)  # 197 blocks: that leaves 2, the watermark
    later = beside.submit(x(16), 5)
    beside.step()
    assert beside.planner.sequences[late].slot is not None
    assert beside.planner.sequences[later].slot is None


def test_stop_ids_end_a_sequence_and_are_counted(rig: Any) -> None:
    simulation = rig.script(72, 105, EOS, 33)
    stream = simulation.submit(x(3), 10)
    simulation.run()
    assert simulation.outputs[stream] == [72, 105, EOS]
    finished = simulation.finished[stream]
    assert (finished.reason, finished.hidden, finished.output_tokens) == ("stop", True, 3)


def test_ignore_eos_and_extra_stop_ids(rig: Any) -> None:
    simulation = rig.script(72, EOS, 105, 33, 34)
    sampling = Sampling(ignore_eos=True, stop_token_ids=(33, 1, 2, 3))
    stream = simulation.submit(x(3), 10, sampling=sampling)
    plain = simulation.submit(x(3), 10)
    simulation.run()
    assert simulation.outputs[stream] == [72, EOS, 105, 33]
    assert simulation.outputs[plain] == [72, EOS]


def test_before_min_tokens_no_stop_id_counts(rig: Any) -> None:
    simulation = rig.script(EOS, 65, EOS, 66, EOS, EOS)
    stream = simulation.submit(x(3), 10, sampling=Sampling(min_tokens=5))
    simulation.run()
    assert simulation.outputs[stream] == [EOS, 65, EOS, 66, EOS, EOS]


def test_the_last_token_by_length_is_shown(rig: Any) -> None:
    simulation = rig.script(65)
    stream = simulation.submit(x(250))  # no max_tokens: the context's remaining 6
    simulation.run()
    finished = simulation.finished[stream]
    assert simulation.outputs[stream] == [65] * 6
    assert (finished.reason, finished.hidden) == ("length", False)


def test_max_tokens_zero_computes_the_prompt_alone(rig: Any) -> None:
    simulation = rig.chain()
    stream, other = simulation.submit(x(100), 0), simulation.submit(x(10), 5)
    simulation.run()
    assert simulation.outputs[stream] == []
    finished = simulation.finished[stream]
    assert (finished.reason, finished.prompt_tokens, finished.output_tokens) == ("length", 100, 0)
    assert simulation.outputs[other] == chain(x(10), 5)


def test_truncate_ends_a_stream_at_what_its_client_keeps(rig: Any) -> None:
    simulation = rig.chain()
    stream = simulation.submit(x(5), 100)
    for _ in range(8):
        simulation.step()
    simulation.planner.truncate(stream, 6, 0.0)
    simulation.take_frame()
    assert simulation.finished[stream].reason == "stop"
    assert simulation.finished[stream].output_tokens == 6
    assert simulation.allocator.stats().available == 64


@pytest.mark.parametrize(
    ("steps", "prompt_tokens", "output_tokens"),
    [(0, 0, 0), (1, 64, 0), (2, 128, 0), (3, 130, 1), (10, 130, 8)],
)
def test_a_cancelled_sequence_is_billed_for_what_was_computed(
    rig: Any, steps: int, prompt_tokens: int, output_tokens: int
) -> None:
    simulation = rig.chain()
    stream = simulation.submit(x(130), 100)
    for _ in range(steps):
        simulation.step()
    simulation.cancel(stream)
    finished = simulation.finished[stream]
    assert finished.reason == "cancelled"
    assert (finished.prompt_tokens, finished.output_tokens) == (prompt_tokens, output_tokens)
    assert simulation.allocator.stats().available == 64
    after = simulation.submit(x(20), 10)
    simulation.run()
    assert simulation.outputs[after] == chain(x(20), 10)


def test_a_preempted_sequence_can_be_cancelled_while_it_waits(rig: Any) -> None:
    simulation = attrs.evolve(rig, blocks=12).chain()
    first, second = simulation.submit(x(48), 96), simulation.submit(x(48), 96)
    while not simulation.planner.preemptions:
        simulation.step()
    computed = len(simulation.outputs[second])
    simulation.cancel(second)
    finished = simulation.finished[second]
    assert (finished.prompt_tokens, finished.output_tokens) == (48, computed)
    simulation.run()
    assert simulation.outputs[first] == chain(x(48), 96)


def test_an_abort_before_the_commit_hides_the_steps_token(rig: Any) -> None:
    simulation = rig.chain()
    stream = simulation.submit(x(130), 100)
    simulation.step()
    simulation.step()
    plan = simulation.start()
    assert plan is not None and plan.samples.tolist() == [True]
    simulation.cancel(stream)
    simulation.commit(plan)
    assert simulation.outputs[stream] == []
    assert simulation.finished[stream].output_tokens == 0
    assert simulation.allocator.stats().available == 64
    simulation.check_books()


def test_late_and_double_controls_change_nothing(rig: Any) -> None:
    simulation = rig.script(65, EOS)
    stream = simulation.submit(x(4), 10)
    simulation.run()
    for again in (stream, stream, 12345):
        simulation.cancel(again)
        simulation.planner.truncate(again, 1, 0.0)
    simulation.take_frame()
    assert simulation.finished[stream].reason == "stop"
    assert simulation.outputs[stream] == [65, EOS]


def test_a_sequence_that_fails_leaves_its_batch_alone(rig: Any) -> None:
    simulation = rig.by_prompt(lambda prompt: [prompt[0], prompt[0] + 1, prompt[0] + 2, EOS])
    simulation._executor.failing = frozenset({(1, 2)})
    streams = [simulation.submit([byte], 10) for byte in (65, 75, 85)]
    simulation.run()
    assert simulation.outputs[streams[1]] == [75, 76]
    failed = simulation.finished[streams[1]]
    assert failed.reason == "error"
    assert failed.failure is not None and failed.failure.code == "engine_error"
    assert simulation.outputs[streams[0]] == [65, 66, 67, EOS]
    assert simulation.outputs[streams[2]] == [85, 86, 87, EOS]


def test_a_failed_step_ends_its_sequences_and_others_return(rig: Any) -> None:
    sized = attrs.evolve(rig, max_sequences=4)
    simulation = sized.chain()
    first = simulation.submit(x(64), 5)
    second = simulation.submit(x(10), 5)  # waits outside the step: the budget is spent
    plan = simulation.start()
    assert plan is not None and plan.slots.size == 1
    simulation._executor.reset()
    simulation.planner.fail(0.0)
    simulation.take_frame()
    assert simulation.finished[first].reason == "error"
    simulation.check_books()
    simulation.run()
    assert simulation.outputs[second] == chain(x(10), 5)


def test_who_was_outside_a_failed_step_is_recomputed(rig: Any) -> None:
    simulation = rig.chain()
    streams = [simulation.submit(x(5 + i), 20) for i in range(2)]
    for _ in range(4):
        simulation.step()
    plan = simulation.start()
    assert plan is not None and plan.slots.size == 2
    simulation.planner._in_flight = attrs.evolve(plan, slots=plan.slots[:1])
    simulation._executor.reset()
    simulation.planner.fail(0.0)
    simulation.take_frame()
    assert [simulation.finished[stream].reason for stream in simulation.finished] == ["error"]
    (bystander,) = set(streams) - set(simulation.finished)
    simulation.run()
    assert simulation.outputs[bystander] == chain(x(5 + bystander), 20)


def test_a_scheduler_that_cannot_take_a_sequence_fails_that_one_alone(rig: Any) -> None:
    class Refuses(type(rig.scheduler(None))):  # type: ignore[misc]
        def add(self, sequence: Any, now: float) -> None:
            if sequence.prompt_tokens == 13:
                raise KeyError("thirteen")
            super().add(sequence, now)

    simulation = attrs.evolve(rig, scheduler=lambda site: Refuses()).chain()
    bad, good = simulation.submit(x(13), 5), simulation.submit(x(14), 5)
    simulation.run()
    assert simulation.finished[bad].reason == "error"
    assert simulation.outputs[good] == chain(x(14), 5)


def test_a_scheduler_that_forgets_to_forget_harms_nobody(rig: Any) -> None:
    class Forgetful(type(rig.scheduler(None))):  # type: ignore[misc]
        def joined(self, sequence: Any, cached: int) -> None: ...

        def remove(self, sequence: Any) -> None:
            raise KeyError("never heard of it")

    simulation = attrs.evolve(rig, scheduler=lambda site: Forgetful()).chain()
    streams = [simulation.submit([65 + i] * 5, 10) for i in range(3)]
    simulation.step()
    simulation.cancel(streams[0])
    simulation.run()
    for i in (1, 2):
        assert simulation.outputs[streams[i]] == chain([65 + i] * 5, 10)


def test_blocks_of_a_sequence_that_failed_are_found_by_nobody(rig: Any) -> None:
    simulation = rig.script(65, 66, EOS)
    simulation._executor.failing = frozenset({(0, 0)})
    simulation.submit(x(40), 10)
    simulation.run()
    again = simulation.submit(x(40), 10)
    simulation.run()
    assert simulation.cached[again] == 0
    assert simulation.outputs[again] == [65, 66, EOS]


def test_the_token_budget_must_hold_every_slot_and_a_block(rig: Any) -> None:
    with pytest.raises(ValueError, match="max_batched_tokens is 23"):
        attrs.evolve(rig, max_batched_tokens=23).chain()


def test_a_long_mixed_run_loses_no_block_and_no_answer(rig: Any) -> None:
    randomness = random.Random(25)
    simulation = attrs.evolve(rig, blocks=24).chain()
    asked: dict[int, tuple[list[int], int]] = {}
    cancelled = set()
    while len(asked) < 500 or simulation.planner.sequences:
        for _ in range(randomness.choice([0, 0, 1, 3])):
            if len(asked) < 500:
                length = randomness.choice([1, 15, 16, 17, 63, 64, 65, 128])
                prompt = [randomness.randrange(32, 127) for _ in range(length)]
                tokens = randomness.choice([1, 2, 15, 16, 17, 60])
                asked[simulation.submit(prompt, tokens)] = prompt, tokens
        alive = sorted(simulation.planner.sequences)
        if alive and randomness.random() < 0.15:
            cancelled.add(stream := randomness.choice(alive))
            simulation.cancel(stream)
        simulation.step()
    assert simulation.planner.preemptions > 0
    assert len(simulation.finished) == len(asked) == 500
    for stream, (prompt, tokens) in asked.items():
        expected = chain(prompt, tokens)
        if stream in cancelled:
            assert simulation.outputs[stream] == expected[: len(simulation.outputs[stream])]
        else:
            assert simulation.outputs[stream] == expected
    assert simulation.allocator.stats().available == 24


def test_a_refused_request_leaves_no_trace(rig: Any) -> None:
    simulation = rig.chain()
    with pytest.raises(RequestFailed):
        simulation.submit(x(300), 1)
    assert simulation.planner.load().waiting == 0
    assert not simulation.step()


def test_a_plan_cannot_be_changed(rig: Any) -> None:
    simulation = rig.chain()
    simulation.submit(x(3), 1)
    plan = simulation.start()
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        plan.slots = np.zeros(1, np.int32)
    with pytest.raises(RuntimeError, match="in flight"):
        simulation.start()
