"""Generations that are taken by a callback, and streams that are held."""

from typing import Any

import anyio
import anyio.lowlevel
import attrs
import numpy as np
import pytest

from plancha.failure import RequestFailed, engine_error, stalled
from plancha.messages import (
    Bill,
    Cancel,
    Control,
    Finished,
    FinishReason,
    Frame,
    Load,
    Pause,
    Resume,
    Settled,
    Truncate,
)
from plancha.record import Outcome, Record
from plancha.streams.generation import Generation
from plancha.streams.outbox import Stream
from plancha.streams.outboxes import WOKEN_AT_ONCE, Outboxes
from plancha_text.byte_text import byte_text

IDLE = Load(total_blocks=1, free_blocks=1, running=0, waiting=0)


@attrs.define(eq=False)
class Desk:
    """Outboxes, generations with one stream each, and what they tell the worker."""

    outboxes: Outboxes = attrs.field(factory=lambda: Outboxes(lambda generation: None))
    controls: list[Control] = attrs.field(factory=list)

    def open(self, *numbers: int, **options: Any) -> Generation:
        text = {"stop": (), "min_tokens": 0, "skip_special_tokens": True, **options}
        streams = tuple(
            Stream(
                number,
                index,
                np.array([65], np.int32),
                byte_text().stream(**text),
                stop_strings=bool(text["stop"]),
            )
            for index, number in enumerate(numbers)
        )
        record = Record(
            id=f"req-{numbers}", label=None, tenant="", model="", created=0, input_tokens=1
        )
        generation = Generation(record, streams, self.controls.append)
        self.outboxes.add(generation)
        return generation

    def step(self, tokens: dict[int, int], *finished: Finished) -> None:
        streams = np.array(list(tokens), np.int64)
        ids = np.array(list(tokens.values()), np.int32)
        self.outboxes.deliver(Frame(streams, ids, (), finished, IDLE))

    def settle(self, *streams: int, output_tokens: int, outcome: Outcome = "completed") -> None:
        """One request's."""
        bill = Bill(
            streams=streams,
            input_tokens=1,
            cached_tokens=0,
            output_tokens=output_tokens,
            outcome=outcome,
            finished_s=7.5,
        )
        self.outboxes.settle(Settled((bill,)))


def text_of(generation: Generation, most: int = 1000) -> str:
    return "".join(delta.text for delta in generation.take(most))


def test_a_sink_is_called_once_for_all_that_came_before_its_turn() -> None:
    desk = Desk()
    first, second = desk.open(1, 2), desk.open(3)
    called: list[str] = []
    first.attach(lambda: called.append("first"))
    second.attach(lambda: called.append("second"))
    desk.step({1: 65, 2: 66, 3: 67})
    desk.step({3: 68})
    desk.outboxes.wake_all()
    assert called == ["first", "second"]
    assert (text_of(first), text_of(second)) == ("AB", "CD")
    desk.step({1: 69})
    desk.outboxes.wake_all()
    assert called == ["first", "second", "first"]


def test_what_came_before_a_sink_was_attached_is_not_lost() -> None:
    desk = Desk()
    generation = desk.open(1)
    desk.step({1: 65})
    desk.outboxes.wake_all()
    generation.attach(lambda: None)
    assert generation.more
    assert text_of(generation) == "A"
    assert not generation.more


def test_a_limit_leaves_the_rest_in_order_and_the_end_behind_it() -> None:
    desk = Desk()
    generation = desk.open(1)
    for token in b"ABCDE":
        desk.step({1: token})
    desk.step({}, Finished(1, "length", 1, 5))
    desk.settle(1, output_tokens=5)
    desk.outboxes.wake_all()
    parts = []
    while generation.more:
        parts.append([(delta.text, delta.finish_reason) for delta in generation.take(2)])
    assert parts == [
        [("A", None), ("B", None)],
        [("C", None), ("D", None)],
        [("E", None), ("", "length")],
        [],
    ]
    assert generation.ended
    assert generation.record.outcome == "completed"


def test_a_sink_that_raises_ends_its_own_request_alone() -> None:
    desk = Desk()
    bad, good = desk.open(1), desk.open(2)
    taken: list[str] = []

    def fall_over() -> None:
        raise ZeroDivisionError

    bad.attach(fall_over)
    good.attach(lambda: taken.append(text_of(good)))
    for _ in range(2):
        desk.step({1: 65, 2: 66})
        desk.outboxes.wake_all()
    assert taken == ["B", "B"]
    assert desk.controls == [Cancel(1, "failed")]
    with pytest.raises(RequestFailed) as failed:
        bad.take()
    assert failed.value.failure == engine_error()
    desk.step({}, Finished(1, "cancelled", 1, 2))
    desk.settle(1, output_tokens=2, outcome="failed")
    assert (bad.record.state, bad.record.outcome) == ("done", "failed")
    assert list(desk.outboxes.running) == [good.record.id]


def test_a_detokeniser_that_raises_is_an_error_for_the_sink(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk()
    generation = desk.open(1)
    failures = []

    def take() -> None:
        with pytest.raises(RequestFailed) as failed:
            generation.take()
        failures.append(failed.value.failure)

    generation.attach(take)
    monkeypatch.setattr("plancha_text.token_stream.TokenStream.push", None)
    desk.step({1: 65})
    desk.outboxes.wake_all()
    assert failures == [engine_error()]
    assert desk.controls == [Cancel(1, "failed")]


def test_nobody_flushes_before_all_that_are_woken_have_been_told() -> None:
    desk = Desk()
    called: list[str] = []
    for number in (1, 2, 3):
        generation = desk.open(number)
        generation.attach(
            lambda number=number: called.append(f"sink {number}"),  # type: ignore[misc]
            lambda number=number: called.append(f"flush {number}"),  # type: ignore[misc]
        )
    desk.step({1: 65, 3: 65})
    desk.outboxes.wake_all()
    assert called == ["sink 1", "sink 3", "flush 1", "flush 3"]


def test_a_failure_is_flushed_at_once() -> None:
    desk = Desk()
    generation = desk.open(1)
    taken: list[str] = []
    flushed: list[list[str]] = []
    generation.attach(lambda: taken.append(text_of(generation)), lambda: flushed.append([*taken]))
    desk.step({1: 65})
    generation.fail(engine_error())
    assert flushed == [["A"]]


def test_a_flush_that_raises_ends_its_own_request_alone() -> None:
    desk = Desk()
    bad, good = desk.open(1), desk.open(2)
    flushed: list[int] = []

    def fall_over() -> None:
        raise ZeroDivisionError

    bad.attach(lambda: None, fall_over)
    good.attach(lambda: None, lambda: flushed.append(2))
    for _ in range(2):
        desk.step({1: 65, 2: 66})
        desk.outboxes.wake_all()
    assert flushed == [2, 2]
    with pytest.raises(RequestFailed) as failed:
        bad.take()
    assert failed.value.failure == engine_error()


async def test_after_its_context_is_left_a_sink_is_never_called() -> None:
    desk = Desk()
    async with desk.open(1) as generation:
        generation.attach(lambda: pytest.fail("called"))
    desk.step({1: 65})
    desk.outboxes.wake_all()
    assert desk.controls == [Cancel(1)]


def test_a_stream_is_paused_once_and_goes_on_below_half() -> None:
    desk = Desk()
    generation = desk.open(1)
    for step in range(10):
        desk.step({1: 65 + step})
        generation.hold(8)
        assert desk.controls == ([] if step < 7 else [Pause(1)])
    desk.outboxes.wake_all()
    assert text_of(generation, 6) == "ABCDEF"
    assert desk.controls == [Pause(1)]  # half of the eight are left
    assert text_of(generation, 1) == "G"
    assert desk.controls == [Pause(1), Resume(1)]
    assert text_of(generation) == "HIJ"
    for _ in range(8):
        desk.step({1: 65})
    generation.hold(8)
    assert desk.controls == [Pause(1), Resume(1), Pause(1)]


def test_a_stream_that_has_ended_is_neither_paused_nor_resumed() -> None:
    desk = Desk()
    generation = desk.open(1, 2)
    for _ in range(4):
        desk.step({1: 65, 2: 66})
    desk.step({}, Finished(1, "length", 1, 4))
    generation.hold(4)
    assert desk.controls == [Pause(2)]
    desk.step({}, Finished(2, "cancelled", 1, 4))
    desk.outboxes.wake_all()
    assert text_of(generation) == "AAAABBBB"
    assert desk.controls == [Pause(2)]


def test_a_stop_string_found_late_ends_a_held_stream() -> None:
    desk = Desk()
    generation = desk.open(1, stop=("CD",))
    for token in b"ABCDEF":
        desk.step({1: token})
    generation.hold(6)
    desk.outboxes.wake_all()
    assert text_of(generation) == "AB"
    assert desk.controls == [Pause(1), Truncate(1, 4)]
    desk.step({}, Finished(1, "stop", 1, 4))
    desk.settle(1, output_tokens=4)
    assert (generation.record.output_tokens, generation.record.outcome) == (4, "completed")


def test_a_stalled_request_drops_what_waits_and_says_so_in_its_record() -> None:
    desk = Desk()
    generation = desk.open(1)
    desk.step({1: 65})
    generation.hold(1)
    generation.abort(stalled(30))
    assert desk.controls == [Pause(1), Cancel(1, "stalled")]
    with pytest.raises(RequestFailed) as failed:
        generation.take()
    assert failed.value.failure.code == "stalled"
    desk.step({}, Finished(1, "cancelled", 1, 1))
    desk.settle(1, output_tokens=1, outcome="stalled")
    assert generation.record.outcome == "stalled"


def test_an_end_is_told_when_it_is_settled_and_the_text_before_it_at_once() -> None:
    desk = Desk()
    generation = desk.open(1)
    desk.step({1: 65}, Finished(1, "length", 1, 1))
    desk.outboxes.wake_all()
    assert [delta.finish_reason for delta in generation.take()] == [None, "length"]
    assert (generation.more, generation.ended) == (False, False)
    desk.settle(1, output_tokens=1)
    desk.outboxes.wake_all()
    assert (generation.more, generation.take(), generation.ended) == (True, [], True)
    record = generation.record
    assert (record.state, record.output_tokens, record.finished) == ("done", 1, 7)


@pytest.mark.parametrize("reason", ["cancelled", "error"])
def test_an_unhappy_end_waits_for_that_too(reason: FinishReason) -> None:
    desk = Desk()
    generation = desk.open(1)
    desk.step({1: 65}, Finished(1, reason, 1, 1))
    desk.outboxes.wake_all()
    assert [delta.finish_reason for delta in generation.take()] == [None]
    assert generation.take() == []
    desk.settle(1, output_tokens=1, outcome="failed")
    desk.outboxes.wake_all()
    if reason == "error":
        with pytest.raises(RequestFailed):
            generation.take()
    else:
        assert [delta.finish_reason for delta in generation.take()] == ["cancelled"]
    assert generation.ended or generation.take() == []


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_with_stop_strings_the_worker_is_told_how_much_was_taken(reason: FinishReason) -> None:
    desk = Desk()
    generation = desk.open(1, stop=("xyz",))
    desk.step({1: 65})
    desk.step({1: 257}, Finished(1, reason, 1, 2, hidden=reason == "stop"))
    assert desk.controls == []
    desk.outboxes.wake_all()
    assert text_of(generation).startswith("A")
    assert desk.controls == [Truncate(1, 2)]


def test_with_stop_strings_a_failure_that_was_taken_is_the_last_word_too() -> None:
    desk = Desk()
    failed, matched = desk.open(1, stop=("xyz",)), desk.open(2, stop=("AB",))
    desk.step({1: 65, 2: 65})
    desk.step({2: 66})
    desk.step({2: 67}, Finished(1, "error", 1, 1), Finished(2, "error", 1, 3))
    desk.outboxes.wake_all()
    assert text_of(failed) + text_of(matched) == "A"
    assert desk.controls == [Cancel(1, "failed"), Truncate(2, 2)]


def test_a_client_that_leaves_before_it_took_all_leaves_the_worker_with_what_it_computed() -> None:
    desk = Desk()
    ended, running, plain = desk.open(1, stop=("x",)), desk.open(2, stop=("x",)), desk.open(3)
    desk.step({1: 65, 2: 65, 3: 65}, Finished(1, "length", 1, 1), Finished(3, "length", 1, 1))
    for generation in (ended, running, plain):
        generation.cancel()
    assert desk.controls == [Cancel(1), Cancel(2)]


async def test_the_event_loop_has_its_turn_while_many_are_woken() -> None:
    desk = Desk()
    woken: list[int] = []
    count = 3 * WOKEN_AT_ONCE
    for number in range(count):
        desk.open(number).attach(lambda number=number: woken.append(number))  # type: ignore[misc]
    turns: list[int] = []

    async def others() -> None:
        while len(woken) < count:
            await anyio.lowlevel.checkpoint()
            turns.append(len(woken))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(desk.outboxes.waking)
        desk.step(dict.fromkeys(range(count), 65))
        await others()
        tasks.cancel_scope.cancel()
    assert woken == list(range(count))
    assert {WOKEN_AT_ONCE, 2 * WOKEN_AT_ONCE} <= set(turns)
