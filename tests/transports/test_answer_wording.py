"""How deltas that waited together are worded, without a server."""

from typing import Any

import orjson
import pytest

from plancha.record import Record
from plancha.streams.outbox import Delta
from plancha_text.byte_text import byte_text
from plancha_transports.answers import Pieces
from plancha_transports.openai_answers import Chunks
from plancha_transports.shapes import ChatShape, Shape, TextShape
from plancha_transports.socket_messages import SocketEvents


@pytest.fixture
def record() -> Record:
    return Record(id="req-1", label=None, tenant="t", model="tiny", created=1, input_tokens=3)


TOKEN_BYTES = byte_text().token_bytes


def chunks_of(record: Record, shape: Shape) -> Chunks:
    return Chunks(record, shape, Pieces({}), include_usage=False)


def choices(events: bytes) -> list[Any]:
    return [orjson.loads(event[6:])["choices"][0] for event in events.split(b"\n\n") if event]


def test_tokens_that_waited_together_are_one_chunk_a_prompt(record: Record) -> None:
    chunks = chunks_of(record, TextShape(TOKEN_BYTES, None))
    sent = choices(chunks.deltas([Delta(0, 72, "H"), Delta(0, 105, "i"), Delta(1, 89, "Y")]))
    assert [(choice["index"], choice["text"]) for choice in sent] == [(0, "Hi"), (1, "Y")]


def test_text_that_is_still_undecided_makes_no_chunk(record: Record) -> None:
    chunks = chunks_of(record, TextShape(TOKEN_BYTES, None))
    assert chunks.deltas([Delta(0, 240, ""), Delta(0, 159, "")]) == b""


def test_the_role_is_said_once_for_each_choice(record: Record) -> None:
    chunks = chunks_of(record, ChatShape(TOKEN_BYTES))
    first = choices(chunks.deltas([Delta(0, 72, "H")]))
    second = choices(chunks.deltas([Delta(0, 105, "i"), Delta(0, None, "!", "stop")]))
    assert [choice["delta"] for choice in first] == [
        {"role": "assistant", "content": ""},
        {"content": "H"},
    ]
    assert [(choice["delta"], choice["finish_reason"]) for choice in second] == [
        ({"content": "i!"}, None),
        ({}, "stop"),
    ]


def test_a_socket_that_lags_gets_several_tokens_in_one_message(record: Record) -> None:
    events = SocketEvents("a", record)
    one = events.deltas([Delta(0, 72, "H")])
    three = events.deltas([Delta(0, 105, "i"), Delta(0, 240, ""), Delta(0, 159, "")])
    assert one is not None and three is not None
    assert orjson.loads(one) == {
        "type": "token",
        "id": "a",
        "index": 0,
        "token": 72,
        "text": "H",
    }
    assert orjson.loads(three) == {
        "type": "tokens",
        "id": "a",
        "index": 1,
        "tokens": [105, 240, 159],
        "text": "i",
    }
