"""A real server on loopback over a scripted model, and clients to talk to it."""

import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import aiohttp
import anyio
import attrs
import orjson
import pytest

from plancha.contracts import Executor, Geometry, Text
from plancha.gateway import Gateway
from plancha.kernel import Kernel
from plancha.options import structure
from plancha.plans import Plan, StepDone
from plancha.testing.embedded import Limits, embedded
from plancha.testing.executors import ChainExecutor, ScriptExecutor, foretold
from plancha_text.byte_text import byte_text
from plancha_transports.http import HttpTransport
from plancha_transports.options import HttpOptions

EOS = 257
GEOMETRY = Geometry(blocks=64, context_length=256, vocabulary=264, stop_ids=(EOS,))
HANG_S = 60.0

Event = tuple[str | None, Any]
"""Name, and data: JSON, or a string that is none."""


@attrs.frozen(kw_only=True)
class Server:
    """What listens, what is behind it, and a client."""

    url: str
    gateway: Gateway
    session: aiohttp.ClientSession
    stop: Callable[[], Awaitable[None]]
    kernel: Kernel | None = None

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    async def get(self, path: str) -> tuple[int, Any]:
        async with self.session.get(self.url + path) as response:
            return response.status, orjson.loads(await response.read())

    async def post(self, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        async with self.session.post(self.url + path, json=body, headers=headers) as response:
            return response.status, orjson.loads(await response.read())

    async def refusal(self, path: str, body: Any) -> tuple[int, Any]:
        """Status and error of a request that must be refused in OpenAI's shape."""
        status, answer = await self.post(path, body)
        assert set(answer) == {"error"}, answer
        assert set(answer["error"]) == {"message", "type", "param", "code"}
        return status, answer["error"]

    async def events(self, path: str, body: Any) -> list[Event]:
        """All events of a stream that must start well and end by itself."""
        async with self.session.post(self.url + path, json=body) as response:
            assert response.status == 200, await response.text()
            return parse_events(await response.read())

    async def quiet(self) -> None:
        """Wait until nobody runs or waits; then every block must be back, or only cached."""
        assert self.kernel is not None
        planner = self.kernel.planner
        assert planner is not None
        await until(lambda: not planner.sequences and not planner.in_flight)
        await until(lambda: not self.gateway.running)
        load = planner.load()
        assert load.free_blocks + load.cached_blocks == load.total_blocks
        assert (load.running, load.waiting) == (0, 0)


def parse_events(stream: bytes) -> list[Event]:
    """Server-sent events as the specification reads them; comments are dropped."""
    assert stream.endswith(b"\n\n"), stream[-40:]
    events: list[Event] = []
    for block in stream.decode("utf-8", "strict").split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        fields = dict(line.split(": ", 1) for line in lines)
        if "data" in fields:
            events.append((fields.get("event"), parsed(fields["data"])))
    return events


def parsed(data: str) -> Any:
    return data if data == "[DONE]" else orjson.loads(data)


async def until(holds: Callable[[], bool]) -> None:
    """Wait for a condition that is about to hold; the hang guard is no expectation."""
    with anyio.fail_after(HANG_S):
        while not holds():  # noqa: ASYNC110
            await anyio.sleep(0.001)


def script(*ids: int, **fields: Any) -> ScriptExecutor:
    return ScriptExecutor(lambda prompt: ids, GEOMETRY, **fields)


def spell(text: str) -> ScriptExecutor:
    """Says `text`, then eos."""
    return script(*text.encode(), EOS)


@attrs.define(eq=False)
class Foretelling(ScriptExecutor):
    """Reports log-probabilities as the chain does: -id / 64, and as alternatives id and id + 1."""

    def step(self, plan: Plan) -> StepDone:
        done = super().step(plan)
        return attrs.evolve(done, logprobs=foretold(done.tokens))


def foretell(*ids: int) -> ScriptExecutor:
    return Foretelling(lambda prompt: ids, GEOMETRY)


def chained(**geometry: Any) -> ChainExecutor:
    return ChainExecutor(attrs.evolve(GEOMETRY, **geometry))


@asynccontextmanager
async def listening(
    gateway: Gateway, kernel: Kernel | None, **options: Any
) -> AsyncIterator[Server]:
    transport = HttpTransport(structure({"port": 0, **options}, HttpOptions, ""))
    address: list[str] = []
    timeout = aiohttp.ClientTimeout(total=HANG_S)
    async with (
        anyio.create_task_group() as tasks,
        aiohttp.ClientSession(timeout=timeout) as session,
    ):
        scope, stopped = anyio.CancelScope(), anyio.Event()

        async def run() -> None:
            with scope:
                await transport.run(gateway, address.append)
            stopped.set()

        async def stop() -> None:
            scope.cancel()
            await stopped.wait()

        tasks.start_soon(run)
        await until(lambda: bool(address))
        try:
            yield Server(url=address[0], gateway=gateway, kernel=kernel, session=session, stop=stop)
        finally:
            scope.cancel()


@asynccontextmanager
async def serving(
    executor: Executor, *, text: Text | None = None, limits: Limits | None = None, **options: Any
) -> AsyncIterator[Server]:
    """A whole server; `options` are those of the transport."""
    async with (
        embedded(executor, text or byte_text(), limits=limits) as kernel,
        listening(kernel.gateway, kernel, **options) as server,
    ):
        yield server


class RawClient:
    """A TCP connection that sends any bytes and can be torn down in any way."""

    def __init__(self, stream: anyio.abc.SocketStream) -> None:
        self.stream = stream
        self.received = b""

    async def post(self, path: str, body: Any) -> None:
        data = orjson.dumps(body)
        await self.send(
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n".encode()
            + data
        )

    async def send(self, data: bytes) -> None:
        await self.stream.send(data)

    async def receive_until(self, end: bytes) -> bytes:
        """Everything received so far, as soon as `end` is in it."""
        with anyio.fail_after(HANG_S):
            while end not in self.received:
                self.received += await self.stream.receive()
        return self.received

    async def receive_all(self) -> bytes:
        """Everything, once the server has closed."""
        with anyio.fail_after(HANG_S):
            try:
                while True:
                    self.received += await self.stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return self.received

    async def reset(self) -> None:
        """Close with RST, as a client that crashed."""
        raw = self.stream.extra(anyio.abc.SocketAttribute.raw_socket)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await self.stream.aclose()

    async def close(self) -> None:
        await self.stream.aclose()


@asynccontextmanager
async def raw_client(server: Server) -> AsyncIterator[RawClient]:
    async with await anyio.connect_tcp("127.0.0.1", server.port) as stream:
        yield RawClient(stream)


Serving = Callable[..., AbstractAsyncContextManager[Server]]


@pytest.fixture
def serve() -> Serving:
    """`async with serve(executor, **options) as server`."""
    return serving


@pytest.fixture
def listen() -> Serving:
    """`async with listen(gateway, None, **options) as server`, whatever state the gateway is in."""
    return listening


@pytest.fixture
def connect() -> Callable[[Server], AbstractAsyncContextManager[RawClient]]:
    return raw_client


@pytest.fixture
def says() -> Callable[[str], ScriptExecutor]:
    """An executor that says a text, then eos."""
    return spell


@pytest.fixture
def emits() -> Callable[..., ScriptExecutor]:
    """An executor that emits ids, the last one for ever."""
    return script


@pytest.fixture
def foretells() -> Callable[..., ScriptExecutor]:
    """As `emits`, with log-probabilities."""
    return foretell


@pytest.fixture
def chains() -> Callable[..., ChainExecutor]:
    """An executor whose every id follows from all before it, with log-probabilities."""
    return chained


@pytest.fixture(name="until")
def until_fixture() -> Callable[[Callable[[], bool]], Any]:
    return until
