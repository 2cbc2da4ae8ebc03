"""The plugin itself: options, address, and how it stops."""

import socket
from typing import Any

import anyio
import pytest
from aiohttp import WSMsgType

from plancha.contracts import LoadError, Site
from plancha.failure import Failure
from plancha.gateway import Gateway
from plancha.options import OptionsError
from plancha.plugins import create
from plancha.testing.gate import GatedExecutor
from plancha_transports.http import HttpTransport, http
from plancha_transports.options import HttpOptions

SITE = Site(
    max_sequences=8,
    max_batched_tokens=64,
    max_waiting=64,
    block_size=16,
    model="tiny",
    vocabulary=260,
)


def test_the_plugin_comes_through_its_entry_point() -> None:
    assert isinstance(create("plancha.transports", "http", {}, SITE), HttpTransport)


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ({"prot": 8000}, "transport.http.prot"),
        ({"port": "8000"}, "transport.http.port"),
        ({"port": 65536}, "transport.http.port"),
        ({"max_body": "8MiBs"}, "transport.http.max_body"),
        ({"max_body": 0}, "transport.http.max_body"),
        ({"heartbeat_s": -1}, "transport.http.heartbeat_s"),
        ({"allowed_origins": ["localhost:3000"]}, "transport.http.allowed_origins"),
    ],
)
def test_a_mistake_in_its_table_is_named(table: Any, key: str) -> None:
    with pytest.raises(OptionsError) as wrong:
        http(table, SITE)
    assert [problem.key for problem in wrong.value.problems] == [key]


async def test_a_taken_port_is_told_to_the_operator() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        transport = HttpTransport(HttpOptions(port=port))
        with pytest.raises(LoadError, match=str(port)):
            await transport.run(Gateway("tiny"), lambda address: None)


async def test_it_listens_on_loopback_unless_told_otherwise(listen: Any) -> None:
    async with listen(Gateway("tiny"), None) as server:
        assert server.url.startswith("http://127.0.0.1:")


@pytest.mark.parametrize("path", ["/generate", "/v1/completions"])
async def test_a_stopping_server_ends_every_stream_with_an_error_event(
    serve: Any, emits: Any, connect: Any, path: str
) -> None:
    gated = GatedExecutor(emits(65))
    body = {"prompt": "x", "max_tokens": 200}
    if path != "/generate":
        body["stream"] = True
    async with serve(gated) as server, connect(server) as client:
        await client.post(path, body)
        await gated.run(1)
        await client.receive_until(b'"A"')
        await server.stop()
        answer = await client.receive_all()
        assert b'"draining"' in answer
        assert answer.endswith(b"\r\n0\r\n\r\n")
        assert b"[DONE]" not in answer
        gated.open()


async def test_a_stopping_server_tells_who_waits_for_a_whole_answer(
    serve: Any, emits: Any, connect: Any
) -> None:
    gated = GatedExecutor(emits(65))
    async with serve(gated) as server, connect(server) as client:
        await client.post("/v1/completions", {"prompt": "x"})
        await gated.started()
        await server.stop()
        answer = await client.receive_all()
        assert answer.startswith(b"HTTP/1.1 503 ")
        gated.open()


async def test_a_stopping_server_ends_sockets_with_their_messages_and_1001(
    serve: Any, emits: Any
) -> None:
    gated = GatedExecutor(emits(65))
    async with (
        serve(gated) as server,
        server.session.ws_connect(server.url + "/v1/stream", autoclose=False) as busy,
        server.session.ws_connect(server.url + "/v1/stream", autoclose=False) as idle,
    ):
        await busy.send_json({"type": "generate", "id": "a", "prompt": "x"})
        assert (await busy.receive_json())["type"] == "queued"
        await gated.started()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.stop)
            error = await busy.receive_json()
            assert (error["type"], error["id"]) == ("error", "a")
            assert error["error"]["code"] == "draining"
            for socket_ in (busy, idle):
                message = await socket_.receive()
                assert (message.type, message.data) == (WSMsgType.CLOSE, 1001)
                assert message.extra
                await socket_.close()
        gated.open()


async def test_a_drained_server_can_still_be_asked_how_it_is(serve: Any, says: Any) -> None:
    async with serve(says("Hi")) as server:
        server.gateway.refuse("draining", "shutting down")
        server.gateway.fail_all(Failure("unavailable", "The server is shutting down.", None, None))
        assert (await server.get("/health/live"))[0] == 200
        status, error = await server.refusal("/v1/completions", {"prompt": "x"})
        assert (status, error["code"]) == (503, "draining")
