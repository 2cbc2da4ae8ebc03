"""Health tells the truth, whichever process is asked: of a start, and of steps that do not end."""

import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from server_clients import Stream, answered, client_of, sessions
from server_processes import HANG_S, Server, started

PROBES = 8
"""Each on a connection of its own, so that with two gateways hardly any is never asked."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def hold(folder: Path, what: str) -> Path:
    """While this is there the executor `held` does not go on; see `told_plugins`."""
    path = folder / "site" / what
    path.parent.mkdir(exist_ok=True)
    path.touch()
    return path


async def told(session: aiohttp.ClientSession, path: str) -> tuple[int, Any]:
    async with session.get(path) as response:
        return response.status, await response.json()


@pytest.mark.parametrize("gateways", [0, 2])
async def test_while_it_loads_every_door_says_how_far_it_is(tmp_path: Path, gateways: int) -> None:
    loading = hold(tmp_path, "no_loading")
    port = free_port()
    connector = aiohttp.TCPConnector(force_close=True)
    with started(tmp_path, executor="held", gateways=gateways, port=port) as server:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", connector=connector) as anyone:
            far = {"phase": "loading weights", "percent": 40}
            with anyio.fail_after(HANG_S):
                for _ in range(PROBES):
                    state: Any = {}
                    while state.get("phase") != "loading weights":
                        with suppress(aiohttp.ClientError):  # nobody listens yet
                            status, state = await told(anyone, "/health/startup")
                        await anyio.sleep(0.01)
                    assert (status, state) == (
                        503,
                        {"status": "loading", "reason": "loading"} | far,
                    )
            state = {"status": "loading", "reason": "loading"}
            assert await told(anyone, "/health/ready") == (503, state)
            assert await told(anyone, "/health/live") == (200, {"status": "live"})
            assert (await told(anyone, "/v1/models"))[1]["data"] == []
            async with anyone.post("/v1/completions", json={"prompt": "x"}) as response:
                assert response.status == 503
                assert int(response.headers["Retry-After"]) > 0

            loading.unlink()
            await server.until(lambda: server.said)
            for _ in range(PROBES):
                state = {"status": "ready", "reason": ""}
                assert await told(anyone, "/health/ready") == (200, state)
                started_up = state | {"phase": "started", "percent": 100}
                assert await told(anyone, "/health/startup") == (200, started_up)
            assert len((await told(anyone, "/v1/models"))[1]["data"]) == 1


@asynccontextmanager
async def client_of_each(
    server: Server, gateways: int
) -> AsyncIterator[list[aiohttp.ClientSession]]:
    async with AsyncExitStack() as clients:
        if not gateways:
            await server.until(lambda: server.said)
            yield [await clients.enter_async_context(sessions(server))]
            return
        await server.ready()
        names = server.gateways().values()
        yield [await clients.enter_async_context(client_of(server, name)) for name in names]


@pytest.mark.parametrize("gateways", [0, 2])
async def test_a_step_that_does_not_end_is_seen_at_every_door_until_it_does(
    tmp_path: Path, gateways: int
) -> None:
    settings = "step_deadline_s = 0.5"
    with started(tmp_path, executor="held", gateways=gateways, server=settings) as server:
        async with client_of_each(server, gateways) as clients:
            streams = [Stream(), Stream()]
            async with sessions(server) as session, anyio.create_task_group() as tasks:
                for stream in streams:
                    tasks.start_soon(stream.run, session, 200)
                await server.until(lambda: all(stream.tokens for stream in streams))
                steps = hold(tmp_path, "no_steps")
                for client in clients:
                    await answered(client, "/health/ready", 503)
                    state = {"status": "stalled", "reason": "engine_stalled"}
                    assert await told(client, "/health/ready") == (503, state)
                    assert (await told(client, "/health/live"))[0] == 200
                    assert (await told(client, "/health/startup"))[0] == 200
                steps.unlink()
                for client in clients:
                    await answered(client, "/health/ready", 200)
            assert [(stream.end, stream.tokens) for stream in streams] == [("done", 200)] * 2
            for client in clients:  # nobody waits for a step of an idle one
                assert (await told(client, "/health/ready"))[0] == 200
