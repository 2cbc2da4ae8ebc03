"""Time in the queue, and for a whole request: whoever runs out of it is told so, once."""

from typing import Any

import attrs
import pytest

from plancha.calls.call import Call
from plancha.contracts import Geometry
from plancha.failure import RequestFailed
from plancha.messages import Finished
from plancha.testing.client import collect, quiet
from plancha.testing.embedded import Limits, embedded
from plancha.testing.executors import ScriptExecutor
from plancha.testing.gate import GatedExecutor
from plancha_text.byte_text import byte_text

GEOMETRY = Geometry(blocks=64, context_length=256, vocabulary=264, stop_ids=(257,))


def failed(end: Finished) -> tuple[str, str | None]:
    assert end.reason == "error" and end.failure is not None
    return end.failure.kind, end.failure.code


def test_who_has_not_joined_in_time_ends_and_who_has_goes_on(rig: Any) -> None:
    simulation = attrs.evolve(rig, max_sequences=2).chain(queue_timeout_s=2.0)
    streams = [simulation.submit([120] * 8, 200) for _ in range(4)]
    simulation.step()
    simulation.clock.advance(1.9)
    simulation.step()
    assert not simulation.finished
    simulation.clock.advance(0.1)
    simulation.step()
    assert sorted(simulation.finished) == streams[2:]
    for stream in streams[2:]:
        end = simulation.finished[stream]
        assert failed(end) == ("unavailable", "queue_timeout")
        assert end.failure.retry_after_s >= 1
        assert (end.prompt_tokens, end.output_tokens) == (0, 0)
    simulation.run()
    assert {simulation.finished[stream].reason for stream in streams[:2]} == {"length"}


def test_a_preempted_sequence_is_not_timed_out_by_the_queue(rig: Any) -> None:
    simulation = attrs.evolve(rig, blocks=12, max_sequences=2).chain(queue_timeout_s=2.0)
    streams = [simulation.submit([120] * 60, 100) for _ in range(2)]
    while not simulation.planner.preemptions:
        simulation.step()
    simulation.clock.advance(100)
    simulation.run()
    assert {simulation.finished[stream].reason for stream in streams} == {"length"}


def test_outputs_that_wait_for_their_prompt_are_not_timed_out_by_the_queue(rig: Any) -> None:
    simulation = rig.chain(queue_timeout_s=0.05)
    first = simulation.submit([120] * 200, 3, n=3)  # four steps of 0.02 s for the prompt
    simulation.run()
    ends = [simulation.finished[stream].reason for stream in range(first, first + 3)]
    assert ends == ["length"] * 3


def test_a_list_of_prompts_has_its_turn_when_the_first_of_them_has(rig: Any) -> None:
    one = attrs.evolve(rig, max_sequences=1).chain(queue_timeout_s=2.0)
    first = one.submit([120] * 8, 200, more_prompts=[[121] * 8, [122] * 8])
    one.step()
    one.clock.advance(100)
    one.run()
    assert [one.finished[stream].reason for stream in range(first, first + 3)] == ["length"] * 3


def test_a_list_of_prompts_whose_turn_did_not_come_ends_as_a_whole(rig: Any) -> None:
    one = attrs.evolve(rig, max_sequences=1).chain(queue_timeout_s=2.0)
    one.submit([120] * 8, 200)
    one.step()
    first = one.submit([121] * 8, 5, more_prompts=[[122] * 8])
    one.clock.advance(2.0)
    one.step()
    for stream in range(first, first + 2):
        assert failed(one.finished[stream]) == ("unavailable", "queue_timeout")


def test_a_prompt_that_has_not_begun_in_time_ends_with_all_of_its_outputs(rig: Any) -> None:
    simulation = attrs.evolve(rig, max_sequences=1).chain(queue_timeout_s=2.0)
    simulation.submit([120] * 8, 200)
    simulation.step()
    first = simulation.submit([121] * 8, 3, n=3)
    simulation.clock.advance(2.0)
    simulation.step()
    for stream in range(first, first + 3):
        assert failed(simulation.finished[stream]) == ("unavailable", "queue_timeout")


def test_a_requests_deadline_ends_all_of_its_streams_wherever_they_are(rig: Any) -> None:
    simulation = attrs.evolve(rig, max_sequences=3).chain()
    other = simulation.submit([120] * 8, 200)
    first = simulation.submit([121] * 8, 200, n=4, timeout_s=1.0)
    for _ in range(4):
        simulation.step()
    simulation.clock.advance(1.0)
    simulation.step()
    for stream in range(first, first + 4):
        assert failed(simulation.finished[stream]) == ("timeout", "request_timeout")
    assert simulation.finished[first].prompt_tokens == 8
    assert simulation.finished[first].output_tokens == len(simulation.outputs[first]) > 0
    simulation.run()
    assert simulation.finished[other].reason == "length"
    assert simulation.allocator.stats().available == 64


def test_a_step_that_finishes_a_request_at_its_deadline_has_finished_it(rig: Any) -> None:
    simulation = rig.chain()
    stream = simulation.submit([120] * 8, 1, timeout_s=0.02)
    simulation.step()  # which takes 0.02 s
    simulation.step()
    assert simulation.finished[stream].reason == "length"


def test_time_runs_while_a_reader_lags(rig: Any) -> None:
    simulation = rig.chain()
    stream = simulation.submit([120] * 8, 200, timeout_s=1.0)
    simulation.step()
    simulation.pause(stream)
    simulation.step()
    simulation.clock.advance(1.0)
    simulation.step()
    assert failed(simulation.finished[stream]) == ("timeout", "request_timeout")


def test_deadlines_of_those_who_ended_take_no_memory_and_wake_nobody(rig: Any) -> None:
    simulation = rig.chain(queue_timeout_s=60.0)
    deadlines = simulation.planner.deadlines
    for _ in range(500):
        simulation.submit([120] * 8, 1, timeout_s=86_400.0)
        simulation.step()
        assert len(deadlines._heap) <= 70
    assert deadlines.next_s is None


def test_the_next_deadline_is_the_earliest_that_matters(rig: Any) -> None:
    simulation = rig.chain(queue_timeout_s=5.0)
    deadlines = simulation.planner.deadlines
    slow = simulation.submit([120] * 8, 200, timeout_s=9.0)
    fast = simulation.submit([120] * 8, 200, timeout_s=3.0)
    assert deadlines.next_s == 3.0
    simulation.cancel(fast)
    assert deadlines.next_s == 5.0  # the queue's
    simulation.step()  # they join
    assert deadlines.next_s == 9.0
    simulation.cancel(slow)
    assert deadlines.next_s is None


async def test_an_idle_engine_wakes_up_for_a_deadline() -> None:
    """A scheduler that never offers anybody: all wait, and nothing steps."""

    class Nobody:
        def add(self, sequence: Any, now: float) -> None: ...
        def waiting(self, now: float) -> Any:
            return iter(())

        def joined(self, sequence: Any, cached: int) -> None: ...
        def victims(self, running: Any, for_: Any) -> Any:
            return iter(())

        def charge(self, output: Any) -> None: ...
        def remove(self, sequence: Any) -> None: ...

    executor = ScriptExecutor(lambda prompt: (65,), GEOMETRY)
    limits = Limits(queue_timeout_s=0.05)
    async with embedded(
        executor, byte_text(), limits=limits, scheduler=lambda site: Nobody()
    ) as kernel:
        with pytest.raises(RequestFailed) as timed_out:
            await collect(kernel.gateway, Call(model=None, prompts=("x",)))
        assert timed_out.value.failure.code == "queue_timeout"
        call = Call(model=None, prompts=("x",), timeout_s=0.01)
        with pytest.raises(RequestFailed) as too_slow:
            await collect(kernel.gateway, call)
        assert too_slow.value.failure.code == "request_timeout"
        await quiet(kernel)


async def test_a_step_that_does_not_end_holds_up_no_deadline() -> None:
    gate = GatedExecutor(ScriptExecutor(lambda prompt: (65,), GEOMETRY))
    async with embedded(gate, byte_text()) as kernel:
        call = Call(model=None, prompts=("x",), max_tokens=9, timeout_s=0.05)
        with pytest.raises(RequestFailed) as too_slow:
            await collect(kernel.gateway, call)
        assert too_slow.value.failure.code == "request_timeout"
        assert kernel.planner is not None and kernel.planner.in_flight
        gate.open()
        await quiet(kernel)
