"""Behind a real nginx that ends TLS, configured as our example has it."""

import io
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

import nginx
from plancha.testing.gate import GatedExecutor

pytestmark = pytest.mark.skipif(bool(nginx.missing()), reason=f"needs {nginx.missing()}")

STREAMS = [
    ("/generate", {"prompt": "x", "max_tokens": 3}),
    ("/v1/completions", {"prompt": "x", "max_tokens": 3, "stream": True}),
    (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "x"}], "max_tokens": 3, "stream": True},
    ),
]


@asynccontextmanager
async def client_of(server: Any, folder: Path) -> AsyncIterator[aiohttp.ClientSession]:
    """Who comes by TLS and by way of nginx, on connections of its own."""
    with nginx.in_front_of(server.port, folder) as front:
        connector = aiohttp.TCPConnector(ssl=front.trust)
        timeout = aiohttp.ClientTimeout(total=60)
        async with aiohttp.ClientSession(front.url, connector=connector, timeout=timeout) as client:
            yield client


async def read_to(response: aiohttp.ClientResponse, end: bytes) -> bytes:
    found = b""
    while end not in found:
        more = await response.content.readany()
        assert more, found
        found += more
    return found


@pytest.mark.parametrize(("path", "body"), STREAMS)
async def test_each_token_comes_through_before_the_next_is_computed(
    serve: Any, emits: Any, tmp_path: Path, path: str, body: Any
) -> None:
    gated = GatedExecutor(emits(*b"ABC"))
    async with serve(gated, headers_after_s=0) as server, client_of(server, tmp_path) as client:
        async with client.post(path, json=body, headers={"Accept-Encoding": "gzip"}) as response:
            for letter in "ABC":
                await gated.run(1)
                await read_to(response, f'"{letter}"'.encode())
            await response.read()
            assert response.status == 200
            assert response.headers.getall("Content-Type") == ["text/event-stream; charset=utf-8"]
            assert response.headers.getall("Cache-Control") == ["no-cache"]
            assert len(response.headers.getall("Plancha-Request-Id")) == 1
            assert "Content-Encoding" not in response.headers
            assert "Content-Length" not in response.headers
        await server.quiet()


async def test_a_socket_is_upgraded_and_its_tokens_come_one_by_one(
    serve: Any, emits: Any, tmp_path: Path
) -> None:
    gated = GatedExecutor(emits(*b"ABC"))
    async with (
        serve(gated) as server,
        client_of(server, tmp_path) as client,
        client.ws_connect("/v1/stream", protocols=["plancha"]) as socket,
    ):
        assert socket.protocol == "plancha"
        await socket.send_json({"type": "generate", "id": "a", "prompt": "x", "max_tokens": 3})
        assert (await socket.receive_json())["type"] == "queued"
        for letter in "ABC":
            await gated.run(1)
            assert (await socket.receive_json())["text"] == letter
        assert (await socket.receive_json())["type"] == "done"
        await server.quiet()


@pytest.mark.parametrize("door", ["/generate", "/v1/stream"])
async def test_a_client_that_is_just_gone_cancels(
    serve: Any, emits: Any, until: Any, tmp_path: Path, door: str
) -> None:
    gated = GatedExecutor(emits(65))
    ask = {"prompt": "x", "max_tokens": 200}
    async with serve(gated, headers_after_s=0) as server, client_of(server, tmp_path) as client:
        if door == "/generate":
            response = await client.post(door, json=ask)
            await gated.run(1)
            await read_to(response, b'"A"')
        else:
            socket = await client.ws_connect(door)
            await socket.send_json({"type": "generate", "id": "a", **ask})
            await gated.run(1)
            for kind in ("queued", "token"):
                assert (await socket.receive_json())["type"] == kind
            response = socket._response
        assert response.connection is not None and response.connection.transport is not None
        response.connection.transport.abort()
        (record,) = server.gateway._records.values()
        await until(lambda: record.outcome == "cancelled")
        gated.open()
        await server.quiet()


async def test_our_refusals_come_through_as_they_are(serve: Any, says: Any, tmp_path: Path) -> None:
    large = io.BytesIO(orjson.dumps({"prompt": "x" * (7 * 2**20)}))  # over nginx's default limit
    headers = {"Content-Type": "application/json"}
    async with serve(says("Hi")) as server, client_of(server, tmp_path) as client:
        async with client.post("/v1/completions", data=large, headers=headers) as response:
            assert response.status == 400
            error = orjson.loads(await response.read())["error"]
            assert error["code"] == "context_length_exceeded"
        async with client.get("/nothing") as response:
            assert response.status == 404
            assert orjson.loads(await response.read())["error"]["code"] == "not_found"


@pytest.mark.parametrize(("port", "status"), [(0, 200), (1, 403)])
async def test_a_page_served_from_here_may_call_and_no_other(
    serve: Any, says: Any, tmp_path: Path, port: int, status: int
) -> None:
    async with serve(says("Hi")) as server, client_of(server, tmp_path) as client:
        own = client._base_url
        assert own is not None and own.port is not None
        origin = f"https://localhost:{own.port + port}"
        headers = {"Origin": origin}
        async with client.post("/generate", json={"prompt": "x"}, headers=headers) as response:
            assert response.status == status


async def test_who_comes_without_tls_is_sent_to_where_it_is(
    serve: Any, says: Any, tmp_path: Path
) -> None:
    async with serve(says("Hi")) as server:
        with nginx.in_front_of(server.port, tmp_path) as front:
            async with server.session.post(
                front.plain_url + "/generate?a=b", json={}, allow_redirects=False
            ) as response:
                assert response.status == 308
                assert response.headers["Location"] == "https://localhost/generate?a=b"
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await server.session.get(front.url, ssl=ssl.create_default_context())
