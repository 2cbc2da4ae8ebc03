"""Processes that die: what ends with them, and what takes their place."""

import json
import os
import signal
from functools import partial
from typing import Any

import aiohttp
import anyio
import pytest

from server_clients import Stream, answered, client_of, complete, sessions
from server_processes import Server


async def test_a_lost_gateway_takes_its_own_streams_along_and_is_replaced(server: Server) -> None:
    (place, doomed), (_, other) = server.gateways().items()
    lost, kept = [Stream(), Stream()], Stream()

    async def lose(stream: Stream) -> None:
        with pytest.raises(aiohttp.ClientError):
            async with client_of(server, doomed) as session:
                await stream.run(session, 3000)

    async with anyio.create_task_group() as clients:
        for stream in lost:
            clients.start_soon(lose, stream)

        async def keep() -> None:
            async with client_of(server, other) as session:
                await kept.run(session, 300)

        clients.start_soon(keep)
        await server.until(lambda: all(stream.tokens for stream in (*lost, kept)))
        assert kept.tokens < 300

        os.kill(server.pid(place), signal.SIGKILL)

    for stream in lost:
        await server.until(partial(server.told, "removed", id=stream.id))
        assert stream.tokens < 3000
    assert (kept.end, kept.tokens) == ("done", 300)
    (died,) = server.told("process_died", which=place)
    assert died["code"] == -signal.SIGKILL
    replacement = await server.until(
        lambda: server.gateways()[place] != doomed and server.gateways()[place]
    )
    async with client_of(server, replacement) as session:
        assert (await complete(session, 3))["choices"][0]["text"] == "abc"


async def test_a_lost_worker_ends_every_request_and_is_replaced(server: Server) -> None:
    streams = [Stream() for _ in range(5)]
    plain: list[tuple[int, Any]] = []
    queued: list[tuple[int, Any]] = []
    socket_ends: list[Any] = []
    before = len(server.told("added")), len(server.told("joined"))
    found = len(server.told("worker_found"))

    async def ask(session: aiohttp.ClientSession, answers: list[tuple[int, Any]]) -> None:
        body = {"prompt": "x", "max_tokens": 3000}
        async with session.post("/v1/completions", json=body) as response:
            answers.append((response.status, await response.json()))

    async def converse(session: aiohttp.ClientSession) -> None:
        async with session.ws_connect("/v1/stream") as socket:
            await socket.send_json(
                {"type": "generate", "id": "a", "prompt": "x", "max_tokens": 3000}
            )
            async for message in socket:
                told = json.loads(message.data)
                if told["type"] not in ("queued", "token", "tokens"):
                    socket_ends.append(told)
                    return
            socket_ends.append(socket.close_code)

    async with sessions(server) as session, anyio.create_task_group() as clients:
        for stream in streams:
            clients.start_soon(stream.run, session, 3000)
        for _ in range(2):
            clients.start_soon(ask, session, plain)
        clients.start_soon(converse, session)
        await server.until(lambda: len(server.told("joined")) == before[1] + 8)
        for _ in range(3):
            clients.start_soon(ask, session, queued)
        await server.until(lambda: len(server.told("added")) == before[0] + 11)
        await server.until(lambda: all(stream.tokens for stream in streams))

        os.kill(server.pid("worker"), signal.SIGKILL)
        await answered(session, "/health/ready", 503)

    assert [stream.end for stream in streams] == ["error"] * 5
    assert {stream.error["code"] for stream in streams} == {"worker_lost"}
    assert [status for status, _ in (*plain, *queued)] == [503] * 5
    assert {answer["error"]["code"] for _, answer in (*plain, *queued)} == {"worker_lost"}
    (end,) = socket_ends
    assert (end["type"], end["error"]["code"]) == ("error", "worker_lost")

    await server.until(lambda: len(server.told("worker_found")) == found + 2)
    for name in server.gateways().values():
        async with client_of(server, name) as client:
            assert (await complete(client, 3))["choices"][0]["text"] == "abc"
