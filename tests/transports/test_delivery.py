"""Deliveries and an outlet with room for so many writes."""

from collections.abc import Sequence

import attrs
import numpy as np

from plancha.failure import engine_error
from plancha.messages import Control, Frame, Load, Pause
from plancha.record import Record
from plancha.streams.generation import Generation
from plancha.streams.outbox import Delta, Stream
from plancha.streams.outboxes import Outboxes
from plancha_text.byte_text import byte_text
from plancha_transports.delivery import Delivery
from plancha_transports.failures import CANCELLED

IDLE = Load(total_blocks=1, free_blocks=1, running=0, waiting=0)


@attrs.define
class Tray:
    """Takes `room` writes, each in brackets."""

    room: int
    written: list[bytes] = attrs.field(factory=list)

    def full(self) -> bool:
        return self.room <= 0

    def frame(self, data: bytes) -> bytes:
        return b"[" + data + b"]"

    def write(self, framed: bytes) -> None:
        self.room -= 1
        self.written.append(framed)


class Gone(Tray):
    """Its client has left."""

    def write(self, framed: bytes) -> None:
        raise ConnectionResetError


class Plain:
    """Texts as they are."""

    def token(self, token: int, text: str) -> bytes:
        return text.encode()

    def tokens(self, tokens: Sequence[int], texts: Sequence[str]) -> bytes:
        return "".join(texts).encode()

    def deltas(self, deltas: list[Delta]) -> bytes:
        return "".join([delta.text for delta in deltas]).encode()


@attrs.define
class Counter:
    """Deliveries of one stream each to one tray, and what became of them."""

    tray: Tray
    outboxes: Outboxes = attrs.field(factory=lambda: Outboxes(lambda generation: None))
    controls: list[Control] = attrs.field(factory=list)
    full: list[int] = attrs.field(factory=list)
    ended: list[int] = attrs.field(factory=list)

    def open(self, number: int) -> Delivery:
        text = byte_text().stream(stop=(), min_tokens=0, skip_special_tokens=True)
        stream = Stream(number, 0, np.array([65], np.int32), text, plain=True)
        record = Record(
            id=f"req-{number}", label=None, tenant="", model="", created=0, input_tokens=1
        )
        generation = Generation(record, (stream,), self.controls.append)
        self.outboxes.add(generation)
        delivery = Delivery(
            generation=generation,
            outlet=self.tray,
            events=Plain(),
            most_pending=3,
            on_full=lambda: self.full.append(number),
            on_end=lambda: self.ended.append(number),
        )
        delivery.begin()
        return delivery

    def step(self, **tokens: str) -> None:
        """Stream 1's token is `_1`'s letter, and so on; then everybody is woken."""
        streams = np.array([int(name[1:]) for name in tokens], np.int64)
        ids = np.array([ord(letter) for letter in tokens.values()], np.int32)
        self.outboxes.deliver(Frame(streams, ids, (), (), IDLE))
        self.outboxes.wake_all()


def test_each_token_is_written_in_the_turn_in_which_it_came() -> None:
    counter = Counter(Tray(9))
    counter.open(1)
    counter.open(2)
    counter.step(_1="a", _2="b")
    counter.step(_2="c")
    assert counter.tray.written == [b"[a]", b"[b]", b"[c]"]
    assert counter.full == []


def test_what_was_rendered_when_another_filled_the_outlet_waits_for_room() -> None:
    counter = Counter(Tray(1))
    counter.open(1)
    second = counter.open(2)
    counter.step(_1="a", _2="b")
    assert counter.tray.written == [b"[a]"]
    assert counter.full == [2]
    counter.step(_2="c")
    counter.step(_2="d")
    counter.tray.room = 9
    second.push()
    assert counter.tray.written == [b"[a]", b"[b]", b"[cd]"]


def test_while_the_outlet_is_full_tokens_wait_as_ids_and_their_stream_is_paused() -> None:
    counter = Counter(Tray(0))
    delivery = counter.open(1)
    for letter in "abc":
        assert counter.controls == []
        counter.step(_1=letter)
    assert delivery.generation.streams[0].tokens == [97, 98, 99]
    assert counter.controls == [Pause(1)]


def test_a_failure_comes_after_the_tokens_that_came_before_it() -> None:
    counter = Counter(Tray(9))
    delivery = counter.open(1)
    frame = Frame(np.array([1], np.int64), np.array([97], np.int32), (), (), IDLE)
    counter.outboxes.deliver(frame)
    delivery.generation.fail(engine_error())
    assert counter.tray.written == [b"[a]"]
    assert counter.ended == [1]
    assert delivery.failure == engine_error()


def test_what_was_rendered_for_a_full_outlet_is_dropped_when_it_is_broken_off() -> None:
    counter = Counter(Tray(1))
    counter.open(1)
    second = counter.open(2)
    counter.step(_1="a", _2="b")
    second.stop(engine_error())
    counter.tray.room = 9
    second.push()
    assert counter.tray.written == [b"[a]"]
    assert counter.ended == [2]


def test_a_client_that_has_left_ends_its_delivery_as_cancelled() -> None:
    counter = Counter(Gone(9))
    delivery = counter.open(1)
    counter.step(_1="a")
    assert (delivery.over, delivery.failure) == (True, CANCELLED)
    counter.step(_1="b")
    assert counter.ended == [1]
