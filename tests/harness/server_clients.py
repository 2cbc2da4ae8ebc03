"""Clients of a server's processes, each at the gateway that it wants."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import anyio
import attrs

from server_processes import HANG_S, Server


@asynccontextmanager
async def client_of(server: Server, gateway: str) -> AsyncIterator[aiohttp.ClientSession]:
    """A session whose only connection has come to the gateway of that name."""
    headers = {"Authorization": f"Bearer {server.key}"} if server.key else {}
    async with AsyncExitStack() as tried:
        with anyio.fail_after(HANG_S):
            found = False
            while not found:
                connector = aiohttp.TCPConnector(limit=1)
                session = aiohttp.ClientSession(server.url, connector=connector, headers=headers)
                await tried.enter_async_context(session)
                found = gateway in (await complete(session, 1))["id"]
        yield session


async def complete(session: aiohttp.ClientSession, max_tokens: int) -> Any:
    body = {"prompt": "x", "max_tokens": max_tokens}
    async with session.post("/v1/completions", json=body) as response:
        assert response.status == 200, await response.text()
        return await response.json()


@attrs.define(eq=False)
class Stream:
    """One stream of `POST /generate`: its id once the first token is there, its end later."""

    timeout_s: float | None = None
    id: str = ""
    tokens: int = 0
    end: str | None = None  # the terminal event
    error: Any = None
    status: int = 0
    headers: Mapping[str, str] = attrs.field(factory=dict)

    async def run(self, session: aiohttp.ClientSession, max_tokens: int) -> None:
        body: dict[str, Any] = {"prompt": "x", "max_tokens": max_tokens}
        if self.timeout_s is not None:
            body["timeout_s"] = self.timeout_s
        event = "token"
        async with session.post("/generate", json=body) as response:
            self.status, self.headers = response.status, response.headers
            if response.status != 200:
                self.end, self.error = "refused", (await response.json())["error"]
            async for line in response.content:
                if line.startswith(b"event: "):
                    event = line[7:].strip().decode()
                elif line.startswith(b"data: ") and event == "token":
                    self.id, self.tokens = json.loads(line[6:])["id"], self.tokens + 1
                elif line.startswith(b"data: "):
                    assert self.end is None
                    self.end, self.error = event, json.loads(line[6:]).get("error")


def sessions(server: Server) -> aiohttp.ClientSession:
    """A connection for each request, to whichever gateway."""
    connector = aiohttp.TCPConnector(force_close=True, limit=0)
    return aiohttp.ClientSession(server.url, connector=connector)


async def answered(client: aiohttp.ClientSession, path: str, status: int) -> None:
    """Wait until a GET is answered so."""
    with anyio.fail_after(HANG_S):
        while True:
            async with client.get(path) as response:
                await response.read()
                if response.status == status:
                    return
            await anyio.sleep(0.01)
