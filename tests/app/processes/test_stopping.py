"""How the processes end: told to, told twice, or without their parent."""

import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest

from server_clients import Stream, client_of, sessions
from server_processes import HANG_S, ended, nobody_left, started

UPGRADE = (
    b"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
GOING_AWAY = (1001).to_bytes(2, "big") + b"the server is shutting down"


async def test_told_to_stop_the_gateways_drain_and_then_the_worker_ends(tmp_path: Path) -> None:
    with started(tmp_path, server="drain_timeout_s = 3") as server:
        await server.ready()
        short, long = Stream(), Stream()
        one, other = server.gateways().values()
        async with (
            client_of(server, one) as first,
            client_of(server, other) as second,
            anyio.create_task_group() as clients,
        ):
            clients.start_soon(short.run, first, 30)
            clients.start_soon(long.run, second, 4000)
            await server.until(lambda: short.tokens and long.tokens)
            server.process.send_signal(signal.SIGTERM)
            await server.until(lambda: len(server.told("draining")) == 2)
        with anyio.fail_after(HANG_S):
            await anyio.to_thread.run_sync(server.process.wait)
        assert server.process.returncode == 0
        await nobody_left(server)
    assert (short.end, short.tokens) == ("done", 30)
    assert (long.end, long.error["code"]) == ("error", "draining")
    assert {line["process"] for line in server.told("draining")} == {"gateway-1", "gateway-2"}


async def test_when_the_parent_is_killed_its_children_end_by_themselves(tmp_path: Path) -> None:
    with started(tmp_path) as server:
        await server.ready()
        stream = Stream()
        async with sessions(server) as session, anyio.create_task_group() as clients:
            clients.start_soon(stream.run, session, 4000)
            await server.until(lambda: stream.tokens)
            server.process.kill()
        await nobody_left(server)
        (line,) = server.told("process_started", which="worker")
        assert not Path(line["link"]).parent.exists()
    assert stream.end == "error"


async def test_told_twice_to_stop_nothing_is_waited_for(tmp_path: Path) -> None:
    with started(tmp_path, server="drain_timeout_s = 1000") as server:
        await server.ready()
        streams = [Stream(), Stream()]
        async with AsyncExitStack() as clients, anyio.create_task_group() as tasks:
            for stream, name in zip(streams, server.gateways().values(), strict=True):
                client = await clients.enter_async_context(client_of(server, name))
                tasks.start_soon(stream.run, client, 4000)
            await server.until(lambda: all(stream.tokens for stream in streams))
            server.process.send_signal(signal.SIGINT)
            await server.until(lambda: len(server.told("draining")) == 2)
            server.process.send_signal(signal.SIGTERM)
        await ended(server, 0)
    assert [(stream.end, stream.error["code"]) for stream in streams] == [("error", "draining")] * 2


async def test_told_to_stop_while_its_processes_start_it_stops(tmp_path: Path) -> None:
    with started(tmp_path, server="drain_timeout_s = 1000") as server:
        await server.until(lambda: server.told("process_started"))
        server.process.send_signal(signal.SIGTERM)
        await ended(server, 0)
    assert server.said == []
    assert server.told("process_died") == []


@pytest.mark.parametrize("gateways", [0, 1])
async def test_a_step_that_never_ends_holds_up_no_stop(tmp_path: Path, gateways: int) -> None:
    settings = "drain_timeout_s = 0.1"
    with started(tmp_path, gateways=gateways, executor="hanging", server=settings) as server:
        await server.until(lambda: server.said)
        stream = Stream()
        async with sessions(server) as session, anyio.create_task_group() as clients:
            clients.start_soon(stream.run, session, 3)
            await server.until(lambda: server.told("hangs"))
            server.process.send_signal(signal.SIGTERM)
        await ended(server, 0)
    assert stream.error["code"] == "draining"


async def test_told_again_and_again_to_stop_it_still_tidies_up(tmp_path: Path) -> None:
    with started(tmp_path, gateways=1) as server:
        await server.until(lambda: server.said)
        os.kill(server.pid("worker"), signal.SIGSTOP)  # and so it takes its time to end
        server.process.send_signal(signal.SIGTERM)
        gateway = Path(f"/proc/{server.pid('gateway-1')}")
        await server.until(lambda: not gateway.exists())
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            server.process.send_signal(number)
        await ended(server, 0)


async def test_one_process_alone_finishes_stopping_whatever_it_is_told(tmp_path: Path) -> None:
    with started(tmp_path, gateways=0) as server:
        await server.until(lambda: server.said)
        host, port = server.url.removeprefix("http://").split(":")
        async with await anyio.connect_tcp(host, int(port)) as socket:
            await socket.send(UPGRADE)
            heard = await socket.receive()
            server.process.send_signal(signal.SIGTERM)
            while GOING_AWAY not in heard:  # which this client leaves without an answer
                heard += await socket.receive()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                server.process.send_signal(number)
            await ended(server, 0)
