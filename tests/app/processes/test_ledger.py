"""Usage over processes that die: what was written is there after the next start, and no more."""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from ledger_places import Place
from server_clients import Stream, answered, client_of, complete, sessions
from server_processes import HANG_S, Server, ended, started

LEDGER = "[ledger]\n"


async def usage_of(session: aiohttp.ClientSession, request: str) -> dict[str, Any]:
    async with session.get(f"/v1/requests/{request}/usage") as response:
        assert response.status == 200, await response.text()
        told: dict[str, Any] = await response.json()
        return told


async def lost(session: aiohttp.ClientSession, stream: Stream, max_tokens: int) -> None:
    """A client whose server is killed."""
    with suppress(aiohttp.ClientError):
        await stream.run(session, max_tokens)


async def kill_all(server: Server) -> None:
    """SIGKILL to every process at once, as when the machine's power goes."""
    for pid in (server.process.pid, *server.pids()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    await server.until(lambda: server.process.poll() is not None)
    await server.until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in server.pids()))


@pytest.mark.parametrize("gateways", [0, 2])
async def test_a_server_that_was_killed_knows_after_its_next_start_what_it_had_written(
    tmp_path: Path, gateways: int
) -> None:
    settings = {"gateways": gateways, "executor": "counting", "more": LEDGER}
    drawn = tmp_path / "site" / "drawn"
    with started(tmp_path, **settings) as server:
        await server.until(lambda: server.said)
        async with sessions(server) as session, anyio.create_task_group() as clients:
            answer = await complete(session, 7)
            before = await usage_of(session, answer["id"])
            streams = [Stream(), Stream()]
            for stream in streams:
                clients.start_soon(lost, session, stream, 4000)
            # By 5 ms a token this is long after the first checkpoint.
            await server.until(lambda: all(stream.tokens > 400 for stream in streams))
            running = await usage_of(session, streams[0].id)
            assert (running["status"], running["outcome"]) == ("generating", None)
            await kill_all(server)

    place = Place(tmp_path)
    with started(tmp_path, **settings) as again:
        await again.until(lambda: again.said)
        async with sessions(again) as session:
            assert before["finished"] is not None
            assert (before["input_tokens"], before["output_tokens"]) == (1, 7)
            for _ in range(3):
                assert await usage_of(session, answer["id"]) == before
            cut = [await usage_of(session, stream.id) for stream in streams]
        again.process.send_signal(signal.SIGTERM)
        await ended(again, 0)
    for told in cut:
        assert (told["status"], told["outcome"], told["input_tokens"]) == ("done", "failed", 1)
        assert told["output_tokens"] > 0
    assert sum(told["output_tokens"] for told in cut) + 7 <= drawn.stat().st_size
    assert place.verify().findings == []


async def test_every_gateway_knows_of_every_request_and_a_lost_ones_are_in_the_ledger(
    tmp_path: Path,
) -> None:
    with started(tmp_path, more=LEDGER) as server:
        await server.ready()
        (place, doomed), (_, other) = server.gateways().items()
        async with client_of(server, other) as session:
            async with client_of(server, doomed) as theirs:
                finished = await complete(theirs, 5)
                before = await usage_of(session, finished["id"])
                stream = Stream()
                async with anyio.create_task_group() as clients:
                    clients.start_soon(lost, theirs, stream, 4000)
                    await server.until(lambda: stream.tokens)
                    os.kill(server.pid(place), signal.SIGKILL)
            assert (before["output_tokens"], before["outcome"]) == (5, "completed")
            assert await usage_of(session, finished["id"]) == before
            with anyio.fail_after(HANG_S):
                while (await usage_of(session, stream.id))["status"] != "done":  # noqa: ASYNC110
                    await anyio.sleep(0.01)
            told = await usage_of(session, stream.id)
            assert (told["outcome"], told["input_tokens"]) == ("failed", 1)
            assert stream.tokens <= told["output_tokens"] < 4000


@pytest.mark.parametrize("gateways", [0, 1])
async def test_a_server_that_stops_writes_down_all_that_it_ends(
    tmp_path: Path, gateways: int
) -> None:
    settings = {"gateways": gateways, "server": "drain_timeout_s = 0", "more": LEDGER}
    with started(tmp_path, **settings) as server:
        await server.until(lambda: server.said)
        stream = Stream()
        async with sessions(server) as session, anyio.create_task_group() as clients:
            clients.start_soon(stream.run, session, 4000)
            await server.until(lambda: stream.tokens)
            server.process.send_signal(signal.SIGTERM)
            await server.until(lambda: stream.end)
        await ended(server, 0)
    assert (stream.end, stream.error["code"]) == ("error", "draining")
    (closed,) = [row for row in Place(tmp_path).rows() if row.kind == "close"]
    assert (closed.request, closed.outcome, closed.input_tokens) == (stream.id, "failed", 1)
    assert stream.tokens <= (closed.output_tokens or 0) < 4000


async def test_two_servers_cannot_write_one_ledger(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with started(first, gateways=0, more=LEDGER) as server:
        await server.until(lambda: server.said)
        shared = f'{LEDGER}path = "{first}/ledger.sqlite"\nkey_file = "{first}/ledger.key"\n'
        with started(second, gateways=1, more=shared) as other:
            await ended(other, 1)
            said = "\n".join(other.said)
            assert "another server" in said and str(server.process.pid) in said
        async with sessions(server) as session:
            await answered(session, "/health/ready", 200)
