"""The WebSocket `/v1/stream`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import anyio
import orjson
import pytest
from aiohttp import WSMsgType

from plancha.testing.gate import GatedExecutor

TERMINAL = {"done", "error", "cancelled"}


@asynccontextmanager
async def socket_of(server: Any, **options: Any) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    async with server.session.ws_connect(server.url + "/v1/stream", **options) as socket:
        yield socket


async def said(socket: aiohttp.ClientWebSocketResponse) -> Any:
    message = await socket.receive()
    assert message.type is WSMsgType.TEXT, message
    return orjson.loads(message.data)


async def to_the_end(socket: aiohttp.ClientWebSocketResponse, client_id: str) -> list[Any]:
    """All messages up to the terminal one of `client_id`."""
    messages = []
    while True:
        messages.append(await said(socket))
        if messages[-1]["type"] in TERMINAL and messages[-1]["id"] == client_id:
            return messages


def text_of(messages: list[Any], client_id: str) -> str:
    return "".join(message.get("text", "") for message in messages if message["id"] == client_id)


async def test_tokens_come_one_by_one_and_done_ends_them(serve: Any, emits: Any) -> None:
    gated = GatedExecutor(emits(72, 105, 257))
    async with serve(gated) as server, socket_of(server) as socket:
        await socket.send_json({"type": "generate", "id": "a", "prompt": "xyz"})
        queued = await said(socket)
        assert (queued["type"], queued["id"], queued["model"]) == ("queued", "a", "tiny")
        assert queued["request_id"] == "a"  # its label, as nothing else was given
        tokens = []
        for _ in range(3):
            await gated.run(1)
            tokens.append(await said(socket))
        done = await said(socket)
        _, stored = await server.get(f"/v1/requests/{queued['server_id']}/usage")
    assert tokens == [
        {"type": "token", "id": "a", "index": 0, "token": 72, "text": "H"},
        {"type": "token", "id": "a", "index": 1, "token": 105, "text": "i"},
        {"type": "token", "id": "a", "index": 2, "token": 257, "text": ""},
    ]
    assert done == {
        "type": "done",
        "id": "a",
        "server_id": queued["server_id"],
        "text": "",
        "finish_reason": "stop",
        "usage": {"input_tokens": 3, "cached_tokens": 0, "output_tokens": 3},
    }
    assert stored["output_tokens"] == 3


async def test_a_chat_and_a_cut_character(serve: Any, emits: Any) -> None:
    ids = (72, 240, 159)
    ask = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 3}
    async with serve(emits(*ids)) as server, socket_of(server) as socket:
        await socket.send_json({"type": "generate", "id": "a", **ask})
        messages = await to_the_end(socket, "a")
    assert text_of(messages, "a") == bytes(ids).decode("utf-8", "replace")
    assert messages[-1]["finish_reason"] == "length"


async def test_requests_share_a_socket_and_are_told_apart(serve: Any, emits: Any) -> None:
    executor = emits()
    executor.script = lambda prompt: (prompt[0],) * 40 + (257,)
    async with serve(executor) as server, socket_of(server) as socket:
        for name in "abcdef":
            await socket.send_json({"type": "generate", "id": name, "prompt": name})
        messages: list[Any] = []
        while sum(message["type"] in TERMINAL for message in messages) < 6:
            messages.append(await said(socket))
        for name in "abcdef":
            assert text_of(messages, name) == name * 40
            own = [message["type"] for message in messages if message["id"] == name]
            assert (own[0], own[-1]) == ("queued", "done")
            assert set(own[1:-1]) <= {"token", "tokens"}
        await server.quiet()


async def test_an_id_can_be_used_again_as_soon_as_its_request_has_ended(
    serve: Any, says: Any
) -> None:
    async with serve(says("Hi")) as server, socket_of(server) as socket:
        for _ in range(3):
            await socket.send_json({"type": "generate", "id": "a", "prompt": "x"})
            assert text_of(await to_the_end(socket, "a"), "a") == "Hi"


async def test_an_id_in_use_is_refused_and_its_request_goes_on(serve: Any, emits: Any) -> None:
    gated = GatedExecutor(emits(65, 66, 257))
    async with serve(gated) as server, socket_of(server) as socket:
        ask = {"type": "generate", "id": "a", "prompt": "x"}
        await socket.send_json(ask)
        await gated.started()
        await socket.send_json(ask)
        assert (await said(socket))["type"] == "queued"
        refused = await said(socket)
        assert (refused["type"], refused["id"]) == ("error", None)
        assert (refused["error"]["code"], refused["error"]["param"]) == ("id_in_use", "id")
        gated.open()
        messages = await to_the_end(socket, "a")
        assert (messages[-1]["type"], text_of(messages, "a")) == ("done", "AB")


async def test_a_cancel_ends_its_request_and_no_other(serve: Any, emits: Any, until: Any) -> None:
    gated = GatedExecutor(emits(65))
    async with serve(gated) as server, socket_of(server) as socket:
        for name in "ab":
            await socket.send_json({"type": "generate", "id": name, "prompt": "x"})
            queued = await said(socket)
            assert (queued["type"], queued["id"]) == ("queued", name)
        await gated.run(2)
        await gated.started()
        for _ in range(2):  # the second finds nothing
            await socket.send_json({"type": "cancel", "id": "a"})
        messages = await to_the_end(socket, "a")
        assert messages[-1]["type"] == "cancelled"
        first, second = server.gateway._records.values()
        await until(lambda: first.state == "done")
        assert (first.outcome, second.state) == ("cancelled", "generating")
        await socket.send_json({"type": "cancel", "id": "nobody"})
        gated.open()
        messages = await to_the_end(socket, "b")
        assert messages[-1]["type"] == "done"
        assert all(message["id"] == "b" for message in messages)
        await server.quiet()


async def test_a_request_cancelled_by_http_ends_as_cancelled(serve: Any, emits: Any) -> None:
    gated = GatedExecutor(emits(65))
    async with serve(gated) as server, socket_of(server) as socket:
        await socket.send_json({"type": "generate", "id": "a", "prompt": "x"})
        queued = await said(socket)
        await gated.run(1)
        await gated.started()
        await server.post(f"/v1/requests/{queued['server_id']}/cancel")
        assert (await to_the_end(socket, "a"))[-1]["type"] == "cancelled"
        gated.open()


@pytest.mark.parametrize(
    ("message", "about", "param"),
    [
        ('{"type":', None, None),
        ("[]", None, None),
        ("{}", None, "type"),
        ('{"type":"nonsense","id":"a"}', None, "type"),
        ('{"type":5}', None, "type"),
        ('{"type":"generate","prompt":"x"}', None, "id"),
        ('{"type":"generate","id":"","prompt":"x"}', None, "id"),
        ('{"type":"generate","id":7,"prompt":"x"}', None, "id"),
        ('{"type":"cancel"}', None, "id"),
        ('{"type":"cancel","id":"a","why":1}', "a", "why"),
        ('{"type":"generate","id":"a"}', "a", "prompt"),
        ('{"type":"generate","id":"a","prompt":""}', "a", "prompt"),
        ('{"type":"generate","id":"a","prompt":"x","max_token":1}', "a", "max_token"),
        ('{"type":"generate","id":"a","prompt":"x","temperature":3}', "a", "temperature"),
        ('{"type":"generate","id":"a","prompt":"x","model":"other"}', "a", "model"),
        ('{"type":"generate","id":"a","prompt":[300]}', "a", "prompt"),
        ('{"type":"generate","id":"a","prompt":"x","max_tokens":999}', "a", "max_tokens"),
        ('{"type":"generate","id":"a","prompt":"\\ud83d"}', None, None),
    ],
)
async def test_a_bad_message_is_answered_and_the_socket_stays_open(
    serve: Any, says: Any, message: str, about: str | None, param: str | None
) -> None:
    async with serve(says("Hi")) as server, socket_of(server) as socket:
        await socket.send_str(message)
        error = await said(socket)
        if error["type"] == "queued":  # whether it fits is the worker's word
            error = await said(socket)
        assert (error["type"], error["id"]) == ("error", about)
        assert error["error"]["type"] == "invalid_request_error"
        assert error["error"]["param"] == param
        await socket.send_json({"type": "generate", "id": "a", "prompt": "x"})
        assert (await to_the_end(socket, "a"))[-1]["type"] == "done"


async def test_more_requests_than_a_socket_may_have_are_refused(serve: Any, emits: Any) -> None:
    gated = GatedExecutor(emits(65, 257))
    async with serve(gated, ws_max_requests=1) as server, socket_of(server) as socket:
        await socket.send_json({"type": "generate", "id": "a", "prompt": "x"})
        assert (await said(socket))["type"] == "queued"
        await socket.send_json({"type": "generate", "id": "b", "prompt": "x"})
        refused = await said(socket)
        assert (refused["id"], refused["error"]["code"]) == ("b", "too_many_requests")
        gated.open()
        assert (await to_the_end(socket, "a"))[-1]["type"] == "done"


async def test_a_failure_is_the_requests_own_terminal_message(serve: Any, emits: Any) -> None:
    executor = emits(*b"ABCDEF", failing=frozenset({(0, 3)}))
    async with serve(executor) as server, socket_of(server) as socket:
        await socket.send_json({"type": "generate", "id": "a", "prompt": "x"})
        messages = await to_the_end(socket, "a")
        assert text_of(messages, "a") == "ABC"
        assert messages[-1]["error"]["code"] == "engine_error"
        await socket.send_json({"type": "generate", "id": "b", "prompt": "x", "max_tokens": 2})
        assert (await to_the_end(socket, "b"))[-1]["type"] == "done"


async def close_of(socket: aiohttp.ClientWebSocketResponse) -> tuple[int | None, str]:
    """Code and reason of the server's close, past whatever tokens come before it."""
    while True:
        message = await socket.receive()
        if message.type is WSMsgType.CLOSE:
            return message.data, message.extra or ""
        assert message.type is WSMsgType.TEXT


@pytest.mark.parametrize("size", ["exact", "over"])
async def test_a_message_over_the_limit_closes_with_1009_and_a_reason(
    serve: Any, says: Any, size: str
) -> None:
    empty = orjson.dumps({"type": "generate", "id": "a", "prompt": ""}).decode()
    fill = "x" * (5000 - len(empty) + (size == "over"))
    async with (
        serve(says("Hi"), ws_max_message=5000) as server,
        socket_of(server, autoclose=False) as socket,
    ):
        message = empty.replace('"prompt":""', f'"prompt":"{fill}"')
        assert len(message) == 5000 + (size == "over")
        await socket.send_str(message)
        if size == "exact":  # too long for the model, and told so
            error = await said(socket)
            assert error["error"]["code"] == "context_length_exceeded"
        else:
            code, reason = await close_of(socket)
            assert code == 1009
            assert 0 < len(reason.encode()) <= 123


async def test_a_binary_message_closes_with_1003_and_cancels_what_runs(
    serve: Any, emits: Any
) -> None:
    gated = GatedExecutor(emits(65))
    async with serve(gated) as server, socket_of(server, autoclose=False) as socket:
        await socket.send_json({"type": "generate", "id": "a", "prompt": "x"})
        await gated.started()
        await socket.send_bytes(b"x")
        code, reason = await close_of(socket)
        assert code == 1003
        assert 0 < len(reason.encode()) <= 123
        gated.open()
        await server.quiet()
        (record,) = server.gateway._records.values()
        assert record.outcome == "cancelled"


async def test_what_is_no_utf8_closes_with_1007(serve: Any, says: Any, connect: Any) -> None:
    async with serve(says("Hi")) as server, connect(server) as client:
        await upgrade(client)
        await client.send(frame(0x81, b"\xff\xfe"))
        answer = await client.receive_all()
        assert (1007).to_bytes(2, "big") in answer.partition(b"\r\n\r\n")[2]


async def upgrade(client: Any) -> None:
    await client.send(
        b"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\n"
        b"Upgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    await client.receive_until(b"\r\n\r\n")


def frame(first: int, payload: bytes) -> bytes:
    """A short client frame (RFC 6455, section 5.2) under the mask 0."""
    assert len(payload) < 126
    return bytes([first, 0x80 | len(payload), 0, 0, 0, 0]) + payload


@pytest.mark.parametrize("how", ["close frame", "close", "reset"])
async def test_a_client_that_leaves_takes_all_its_requests_with_it(
    serve: Any, emits: Any, connect: Any, until: Any, how: str
) -> None:
    gated = GatedExecutor(emits(65))
    async with serve(gated) as server, connect(server) as client:
        await upgrade(client)
        for name in ("a", "b"):
            message = {"type": "generate", "id": name, "prompt": "x"}
            await client.send(frame(0x81, orjson.dumps(message)))
            await until(lambda name=name: len(server.gateway._records) == 1 + (name == "b"))
        await gated.run(1)
        await client.receive_until(b'"token"')
        await gated.started()
        if how == "close frame":
            await client.send(frame(0x88, (1000).to_bytes(2, "big")))
        elif how == "close":
            await client.close()
        else:
            await client.reset()
        records = list(server.gateway._records.values())
        await until(lambda: all(record.state == "done" for record in records))
        assert {record.outcome for record in records} == {"cancelled"}
        gated.commit()
        await server.quiet()


async def test_a_client_that_answers_no_ping_is_gone(
    serve: Any, emits: Any, connect: Any, until: Any
) -> None:
    gated = GatedExecutor(emits(65))
    async with serve(gated, ws_heartbeat_s=0.05) as server, connect(server) as client:
        await upgrade(client)
        message = {"type": "generate", "id": "a", "prompt": "x"}
        await client.send(frame(0x81, orjson.dumps(message)))
        await gated.started()
        (record,) = server.gateway._records.values()
        await until(lambda: record.state == "done")  # it never sends a pong, and never closes
        assert record.outcome == "cancelled"
        gated.open()


async def test_pings_keep_a_quiet_socket_open(serve: Any, says: Any) -> None:
    async with (
        serve(says("Hi"), ws_heartbeat_s=0.02) as server,
        socket_of(server, autoping=False) as socket,
    ):
        for _ in range(5):
            message = await socket.receive()
            assert message.type is WSMsgType.PING
            await socket.pong(message.data)
        await socket.send_json({"type": "generate", "id": "a", "prompt": "x"})


async def test_a_plain_get_is_told_to_upgrade(serve: Any, says: Any) -> None:
    async with serve(says("Hi")) as server:
        status, answer = await server.get("/v1/stream")
        assert (status, answer["error"]["code"]) == (426, "upgrade_required")


async def test_a_cancel_is_heard_while_the_client_reads_nothing(
    serve: Any, emits: Any, until: Any
) -> None:
    """Controls are read while answers wait, and each request has its one terminal message."""
    gated = GatedExecutor(emits(65))
    async with serve(gated) as server, socket_of(server) as socket:
        names = [f"r{i}" for i in range(8)]
        for name in names:
            await socket.send_json({"type": "generate", "id": name, "prompt": "x"})
        await until(lambda: len(server.gateway._records) == 8)
        await gated.run(3)
        for name in names:
            await socket.send_json({"type": "cancel", "id": name})
        records = list(server.gateway._records.values())
        await until(lambda: all(record.state == "done" for record in records))
        ends: list[str] = []
        with anyio.fail_after(60):
            while len(ends) < 8:
                message = await said(socket)
                if message["type"] in TERMINAL:
                    ends.append(message["id"])
                    assert message["type"] == "cancelled"
        assert sorted(ends) == names
        gated.open()
        await server.quiet()
