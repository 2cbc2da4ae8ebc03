"""A canary goes through every door and into every failure; then everything left is searched."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import anyio
import orjson
import pytest

from canary_server import CANARY, KEYS, LABEL, CanaryServer, finds, started

JSON = {"Content-Type": "application/json"}
SCHEMA = {"type": "object", "properties": {CANARY: {"const": CANARY}}}
CHAT = [
    {"role": "system", "content": f"You are {CANARY}"},
    {"role": "user", "content": f"Say {CANARY}", "name": "someone"},
]
BODIES: list[tuple[str, Any]] = [
    ("/generate", {"prompt": f"Say {CANARY}", "max_tokens": 40, "request_id": LABEL}),
    ("/generate", {"messages": CHAT, "stop": [CANARY], "cache_salt": CANARY}),
    ("/generate", {"prompt": CANARY, "max_tokens": CANARY}),
    ("/v1/completions", {"prompt": [CANARY, f"{CANARY}!"], "n": 2, "max_tokens": 20}),
    ("/v1/completions", {"prompt": CANARY, "echo": True, "logprobs": 2, "max_tokens": 4}),
    ("/v1/completions", {"prompt": CANARY, "stream": True, "stop": [CANARY[4:]]}),
    ("/v1/completions", {"prompt": list(CANARY.encode()), "max_tokens": 20}),
    ("/v1/completions", {"prompt": CANARY, "model": CANARY}),
    ("/v1/completions", {"prompt": CANARY, "max_tokens": 10**6}),
    ("/v1/completions", {"prompt": f"{CANARY}\ud800".encode("utf-8", "surrogatepass")}),
    ("/v1/chat/completions", {"messages": CHAT, "max_tokens": 30, "user": CANARY}),
    ("/v1/chat/completions", {"messages": CHAT, "tools": [{CANARY: CANARY}]}),
    ("/v1/chat/completions", {"messages": CHAT, CANARY: CANARY}),
    ("/v1/chat/completions", {"messages": [{"role": CANARY, "content": CANARY}]}),
    (
        "/v1/chat/completions",
        {
            "messages": CHAT,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": CANARY, "schema": SCHEMA},
            },
        },
    ),
    ("/v1/completions", {"prompt": f"STEP RAISES {CANARY}"}),
    ("/v1/completions", {"prompt": f"STEP RAISES {CANARY}", "stream": True}),
    ("/generate", {"prompt": f"SCHEDULER RAISES {CANARY}"}),
]
RAW_BODIES = [
    b'{"prompt": "%b' % CANARY.encode(),
    b'{"prompt": "%b\xff"}' % CANARY.encode(),
    b"[" * 2000 + CANARY.encode(),
    CANARY.encode(),
    b'{"prompt": "\\ud800 %b"}' % CANARY.encode(),
]
RAW_REQUESTS = [
    "{canary} / HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "GET /{canary} HTTP/9.{canary}\r\nHost: {host}\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: {canary}.example\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: {host}\r\n{canary}\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: {host}\r\nX: {canary}\x00\r\n\r\n",
    "POST /generate HTTP/1.1\r\nHost: {host}\r\nContent-Length: {canary}\r\n\r\n",
    "POST /generate HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n{canary}\r\n",
    "POST /generate HTTP/1.1\r\nHost: {host}\r\nExpect: {canary}\r\nContent-Length: 2\r\n\r\n{{}}",
    "GET /v1/stream HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {canary}\r\n\r\n",
    "GET /v1/stream HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    "Sec-WebSocket-Protocol: plancha, key.{canary}\r\n\r\n",
]
PLACES = [
    *("/{0}", "/v1/models/{0}", "/v1/models?prompt={0}", "/v1/models?api_key={0}"),
    *("/v1/requests/{0}", "/v1/requests/{0}/usage", "/v1/requests/{0}/text"),
    *("/v1/requests/{0}/trace", "/v1/requests/%ff{0}", "/%2e%2e/{0}"),
]
MESSAGES = [
    orjson.dumps({"type": "generate", "id": LABEL, "prompt": CANARY, "max_tokens": 8}),
    orjson.dumps({"type": "generate", "id": "raises", "prompt": f"STEP RAISES {CANARY}"}),
    orjson.dumps({"type": CANARY, "id": "x"}),
    orjson.dumps({"type": "cancel", "id": "x", CANARY: CANARY}),
    orjson.dumps({"type": "generate", "id": "y", "prompt": CANARY, CANARY: 1}),
    b'{"type": "generate", "prompt": "' + CANARY.encode(),
]


@asynccontextmanager
async def client(url: str, tenant: str = "acme") -> AsyncIterator[aiohttp.ClientSession]:
    headers = {"Authorization": f"Bearer {KEYS[tenant]}"}
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(url, headers=headers, timeout=timeout) as session:
        yield session


async def everything(url: str) -> None:
    """Every door, with what is right and what is wrong."""
    for tenant in ("acme", "hashed"):
        async with client(url, tenant) as session:
            for path, body in BODIES:
                data = body if isinstance(body, bytes) else orjson.dumps(body, default=str)
                await asked(session, "POST", path, data=data, headers={**JSON, "X-Canary": CANARY})
    async with client(url) as session:
        for body in RAW_BODIES:
            for path in ("/generate", "/v1/completions", "/v1/chat/completions"):
                await asked(session, "POST", path, data=body, headers=JSON)
        for headers in (
            {"Authorization": f"Bearer {CANARY}"},
            {"Authorization": CANARY},
            {"Origin": f"https://{CANARY}.example"},
            {"Cookie": CANARY},
            {"X-Request-Id": LABEL},
            {"Content-Encoding": CANARY},
            {"Content-Type": CANARY},
        ):
            whole = {**JSON, **headers}
            await asked(session, "POST", "/generate", data=b'{"prompt": "x"}', headers=whole)
        for place in PLACES:
            for method in ("GET", "DELETE", "POST", "OPTIONS"):
                await asked(session, method, place.format(CANARY))
        await conversation(session)
        await gone_in_the_middle(session)
    for request in RAW_REQUESTS:
        await raw(url, request)


async def asked(session: aiohttp.ClientSession, method: str, path: str, **how: Any) -> None:
    """Whatever comes of it."""
    try:
        async with session.request(method, path, **how) as response:
            await response.read()
    except aiohttp.ClientError:
        pass


async def conversation(session: aiohttp.ClientSession) -> None:
    async with session.ws_connect("/v1/stream") as socket:
        for message in MESSAGES:
            await socket.send_str(message.decode())
        ends = 0
        while ends < len(MESSAGES):
            received = orjson.loads((await socket.receive_str()).encode())
            ends += received["type"] in ("done", "error", "cancelled")
        await socket.send_bytes(CANARY.encode())
        await socket.receive()


async def gone_in_the_middle(session: aiohttp.ClientSession) -> None:
    body = {"prompt": CANARY * 20, "max_tokens": 1000, "ignore_eos": True}
    async with session.post("/generate", json=body) as response:
        await response.content.readany()
        response.close()


async def raw(url: str, request: str) -> None:
    place = urlsplit(url)
    data = request.format(canary=CANARY, host=place.netloc).encode("latin-1")
    async with await anyio.connect_tcp(place.hostname or "", place.port or 0) as stream:
        with anyio.move_on_after(0.3):
            try:
                await stream.send(data)
                while await stream.receive():
                    pass
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                pass


async def views(url: str) -> dict[str, bytes]:
    """What others see: another tenant, an operator, and nobody."""
    found: dict[str, bytes] = {}
    for tenant in ("other", "boss"):
        async with client(url, tenant) as session:
            for path in ("/metrics", "/v1/models", "/openapi.json", "/health/ready"):
                async with session.get(path) as response:
                    found[f"{tenant} {path}"] = await response.read()
    return found


async def searched(server: CanaryServer, seen: dict[str, bytes]) -> None:
    """Nothing anywhere holds the canary, and the client's label only the ledger."""
    left = {**server.left(), **seen}
    assert finds(CANARY, left) == []
    unlabelled = {name: content for name, content in left.items() if "ledger.sqlite" not in name}
    assert finds(LABEL, unlabelled) == []
    assert finds(KEYS["acme"], left) == []


@pytest.mark.parametrize("log_format", ["json", "console"])
async def test_one_process_tells_of_requests_and_never_what_they_were_about(
    tmp_path: Path, log_format: str
) -> None:
    with started(tmp_path, gateways=0, log_format=log_format) as server:
        url = await server.url()
        await everything(url)
        await server.said("sink_failed")
        seen = await views(url)
        server.process.send_signal(signal.SIGHUP)
        server.process.send_signal(signal.SIGTERM)
        await anyio.to_thread.run_sync(server.process.wait)
        for event in ("step_failed", "scheduler_add_failed", "http_request", "socket_request"):
            assert event in server.logs
        await searched(server, seen)
        assert server.process.returncode == 0


async def test_several_processes_do_not_either_however_they_die(tmp_path: Path) -> None:
    with started(tmp_path, gateways=1, log_format="json") as server:
        url = await server.url()
        await everything(url)
        for fate, deaths in (("WORKER ABORTS", 1), ("WORKER IS KILLED", 2)):
            async with client(url) as session:
                body = {"prompt": f"{fate} {CANARY}"}
                await asked(session, "POST", "/v1/completions", json=body)
            await server.said("process_died", deaths)
            await server.said("worker_found", deaths + 1)
        os.kill(server.pid("worker"), signal.SIGUSR1)
        os.kill(server.pid("gateway-1"), signal.SIGABRT)
        await server.said("process_died", 3)
        await server.said("worker_found", 4)
        await everything(url)
        seen = await views(url)
        server.process.send_signal(signal.SIGTERM)
        await anyio.to_thread.run_sync(server.process.wait)
        assert "Fatal Python error: Aborted" in server.logs
        await searched(server, seen)
