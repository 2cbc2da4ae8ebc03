"""Processes that live and do nothing: noticed, borne for a while, and replaced."""

import json
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from server_clients import Stream, answered, client_of, complete, sessions
from server_processes import ended, started


async def test_a_worker_that_hangs_makes_its_gateway_unready_until_it_goes_on(
    tmp_path: Path,
) -> None:
    with started(tmp_path, gateways=1, server="step_deadline_s = 0.5") as server:
        await server.until(lambda: server.said and server.gateways())
        stream = Stream()
        async with sessions(server) as session, anyio.create_task_group() as clients:
            clients.start_soon(stream.run, session, 200)
            await server.until(lambda: stream.tokens)
            os.kill(server.pid("worker"), signal.SIGSTOP)
            try:
                await answered(session, "/health/ready", 503)
                await answered(session, "/health/live", 200)
                assert server.told("engine_stalled", process="gateway-1")
            finally:
                os.kill(server.pid("worker"), signal.SIGCONT)
            await answered(session, "/health/ready", 200)
        assert (stream.end, stream.tokens) == ("done", 200)
        os.kill(server.pid("worker"), signal.SIGSTOP)  # and one that hangs holds up no stop
        server.process.send_signal(signal.SIGTERM)
        await ended(server, 0)


async def test_a_gateway_that_stands_still_is_replaced_while_another_serves(
    tmp_path: Path,
) -> None:
    with started(tmp_path, server="hang_timeout_s = 4") as server:
        await server.ready()
        (place, stopped), (_, other) = server.gateways().items()
        lost = Stream()

        async def lose() -> None:
            with pytest.raises(aiohttp.ClientError):
                async with client_of(server, stopped) as session:
                    await lost.run(session, 4000)

        async with client_of(server, other) as session, anyio.create_task_group() as clients:
            clients.start_soon(lose)
            await server.until(lambda: lost.tokens)
            pid = server.pid(place)
            os.kill(pid, signal.SIGSTOP)
            (line,) = await server.until(partial(server.told, "process_hangs"))
            assert (line["which"], line["pid"]) == (place, pid)
            assert (await complete(session, 3))["choices"][0]["text"] == "abc"
            await server.until(partial(server.told, "removed", id=lost.id))
        replacement = await server.until(
            lambda: server.gateways()[place] != stopped and server.gateways()[place]
        )
        async with client_of(server, replacement) as session:
            assert (await complete(session, 3))["choices"][0]["text"] == "abc"
        (died,) = server.told("process_died")
        assert (died["which"], died["code"], died["hung"]) == (place, -signal.SIGKILL, True)


async def test_when_a_worker_stands_still_deadlines_hold_and_it_is_replaced(tmp_path: Path) -> None:
    """One end to each request: its own deadline's, or the worker's."""
    with started(tmp_path, gateways=1, server="hang_timeout_s = 8") as server:
        await server.until(lambda: server.said and server.gateways())
        hurried, patient = Stream(timeout_s=1.5), Stream()
        plain: list[Any] = []
        ends: list[Any] = []

        async def ask(session: aiohttp.ClientSession) -> None:
            body = {"prompt": "x", "max_tokens": 4000, "timeout_s": 1.5}
            async with session.post("/v1/completions", json=body) as response:
                plain.append((response.status, (await response.json())["error"]["code"]))

        async def converse(session: aiohttp.ClientSession) -> None:
            ask = {"type": "generate", "id": "a", "prompt": "x", "max_tokens": 4000}
            async with session.ws_connect("/v1/stream") as socket:
                await socket.send_json({**ask, "timeout_s": 1.5})
                await socket.send_json({**ask, "id": "b"})
                async for message in socket:
                    told = json.loads(message.data)
                    if told["type"] == "error":
                        ends.append((told["id"], told["error"]["code"]))
                    if len(ends) == 2:
                        return

        async with sessions(server) as session, anyio.create_task_group() as clients:
            for stream in (hurried, patient):
                clients.start_soon(stream.run, session, 4000)
            clients.start_soon(ask, session)
            clients.start_soon(converse, session)
            await server.until(
                lambda: len(server.told("joined")) == 5 and hurried.tokens and patient.tokens
            )
            os.kill(server.pid("worker"), signal.SIGSTOP)
            await server.until(lambda: hurried.end and plain and ends)
            (line,) = await server.until(partial(server.told, "process_hangs"))
            assert line["which"] == "worker"
        assert (hurried.end, hurried.error["code"]) == ("error", "request_timeout")
        assert (patient.end, patient.error["code"]) == ("error", "worker_lost")
        assert plain == [(504, "request_timeout")]
        assert ends == [("a", "request_timeout"), ("b", "worker_lost")]

        await server.until(lambda: len(server.told("worker_found")) == 2)
        async with sessions(server) as session:
            assert (await complete(session, 3))["choices"][0]["text"] == "abc"
