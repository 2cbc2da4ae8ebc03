"""What `door.py` measures, one server a process: our doors, and how others would build them.

    python benchmarks/door_servers.py SIDE STREAMS TOKENS [flood]

Each waits until STREAMS clients are there, then produces TOKENS steps of one token for everybody,
each as soon as the one before has been written; with "flood" without waiting for that. Says on
stdout, as lines of JSON, its port, and what the steps cost without the first, which opens every
stream, and the last, which ends it.
"""

import asyncio
import gc
import resource
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Literal

import anyio
import anyio.lowlevel
import attrs
import numpy as np
import orjson
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from plancha.contracts import TextStream
from plancha.gateway import Gateway
from plancha.links.memory_link import MemoryLink
from plancha.messages import (
    Bill,
    Downstream,
    Finished,
    Frame,
    Int32s,
    Joined,
    Load,
    Settled,
    Submit,
    Upstream,
)
from plancha.options import structure
from plancha_app.logs import configure
from plancha_text.token_stream import TokenStream, TokenTexts
from plancha_transports.http import HttpTransport
from plancha_transports.options import HttpOptions

TOKEN = 7
ID = "req-0123456789abcdef0123456789abcdef"
BASELINE_CHARACTERS = 120  # a token, so that an event has about 209 bytes
SETTLE_S = 0.5
LOAD = Load(total_blocks=1, free_blocks=0, running=1, waiting=0)


@attrs.frozen
class Job:
    """How many clients, steps, and steps at a time."""

    streams: int
    tokens: int  # that count, of each
    flood: bool

    @property
    def steps(self) -> int:
        """One before and one after those that count."""
        return self.tokens + 2


class Meter:
    """What the process used between `start` and `stop`, and its memory along the way."""

    def __init__(self) -> None:
        self._rss = {"start": _rss_mib()}
        self._begun = self._cpu = 0.0

    def start(self) -> None:
        """The steps that count begin."""
        self.memory("open")
        self._begun, self._cpu = time.perf_counter(), time.process_time()

    def stop(self) -> None:
        """They are over."""
        wall_s, cpu_s = time.perf_counter() - self._begun, time.process_time() - self._cpu
        self.memory("steps")
        say(wall_s=wall_s, cpu_s=cpu_s)

    def memory(self, when: str) -> None:
        """Remember how much is resident."""
        self._rss[when] = _rss_mib()

    def report_memory(self) -> None:
        """All streams are closed."""
        self.memory("closed")
        say(rss_mib=self._rss)


def say(**fields: Any) -> None:
    """One line to the measuring process."""
    print(orjson.dumps(fields).decode(), flush=True)


def _rss_mib() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


class PaddedText:
    """A `plancha.contracts.Text` whose every token reads as `characters` letters."""

    vocabulary = 16

    def __init__(self, characters: int) -> None:
        self._texts = TokenTexts.of([b"w" * characters] * self.vocabulary)

    def has_text(self, token: int) -> bool:
        return True

    def token_bytes(self, token: int) -> bytes:
        return self._texts.data[token]

    def plain_bytes(self, token: int) -> bytes:
        return self._texts.data[token]

    def least_tokens(self, prompt: str) -> int:
        return 1

    def encode(self, prompt: str) -> Int32s:
        return np.array([1], np.int32)

    def encode_chat(self, messages: object) -> Int32s:
        return self.encode("")

    def stream(self, **options: Any) -> TextStream:
        return TokenStream(self._texts, (), 0)


async def ours(job: Job, characters: int) -> None:
    """Gateway and HTTP transport as they are, and a worker that has every token ready."""
    upstream_in, upstream = anyio.create_memory_object_stream[Upstream](256)
    downstream, frames = anyio.create_memory_object_stream[Downstream](64)
    gateway = Gateway("model")
    link = MemoryLink(upstream_in, frames)
    gateway.open(PaddedText(characters), link, 2**20)
    transport = HttpTransport(structure({"port": 0}, HttpOptions, "transport.http"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(gateway.fanout, link)
        tasks.start_soon(gateway.control)
        tasks.start_soon(transport.run, gateway, lambda url: say(port=int(url.split(":")[-1])))
        await _work(job, gateway, upstream, downstream)
        tasks.cancel_scope.cancel()


async def _work(
    job: Job,
    gateway: Gateway,
    upstream: MemoryObjectReceiveStream[Upstream],
    downstream: MemoryObjectSendStream[Downstream],
) -> None:
    meter = Meter()
    numbers: list[int] = []
    while len(numbers) < job.streams:
        message = await upstream.receive()
        assert isinstance(message, Submit)
        numbers += message.streams
    streams = np.array(numbers, np.int64)
    tokens = np.full(streams.size, TOKEN, np.int32)
    joined = tuple([Joined(number, 0) for number in numbers])
    ends = tuple([Finished(number, "length", 1, job.steps) for number in numbers])
    bills = tuple([_bill(number, job) for number in numbers])
    for step in range(job.steps):
        first, last = step == 0, step == job.steps - 1
        frame = Frame(streams, tokens, joined if first else (), ends if last else (), LOAD)
        await downstream.send(frame)
        if first or not job.flood or step == job.steps - 2:
            while not downstream.statistics().tasks_waiting_receive or gateway.outboxes.queued:
                await anyio.lowlevel.checkpoint()
        if first:
            await anyio.sleep(SETTLE_S)
            meter.start()
        if step == job.steps - 2:
            meter.stop()
    await downstream.send(Settled(bills))
    while gateway.running:
        await anyio.lowlevel.checkpoint()
    await anyio.sleep(SETTLE_S)
    gc.collect()
    meter.report_memory()
    await anyio.sleep_forever()


def _bill(number: int, job: Job) -> Bill:
    return Bill(
        streams=(number,),
        input_tokens=1,
        cached_tokens=0,
        output_tokens=job.steps,
        outcome="completed",
        finished_s=0.0,
    )


class Queues:
    """One a client, as streaming applications are usually built; the text is made as ours is."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._queues: list[asyncio.Queue[int | None]] = []
        self._meter = Meter()

    async def events(self) -> AsyncIterator[bytes]:
        """JSON for one client, a token each; the last of those expected sets the steps going."""
        text = PaddedText(BASELINE_CHARACTERS).stream()
        queue: asyncio.Queue[int | None] = asyncio.Queue()
        self._queues.append(queue)
        produce = None
        if len(self._queues) == self._job.streams:
            produce = asyncio.create_task(self._produce())
        index = 0
        while (token := await queue.get()) is not None:
            fields = {"id": ID, "index": index, "token": token, "text": text.push(token)}
            yield orjson.dumps(fields)
            index += 1
        if produce is not None:
            await produce

    async def _produce(self) -> None:
        for step in range(self._job.steps):
            for queue in self._queues:
                queue.put_nowait(TOKEN)
            while not all(queue.empty() for queue in self._queues):  # noqa: ASYNC110
                await asyncio.sleep(0)
            if step == 0:
                await asyncio.sleep(SETTLE_S)
                self._meter.start()
            if step == self._job.steps - 2:
                self._meter.stop()
        for queue in self._queues:
            queue.put_nowait(None)


async def system_calls(job: Job) -> None:
    """Nothing but the call that sends, for bytes that are ready: what no server can do without."""
    chunk = b"d2\r\n" + b"w" * 0xD2 + b"\r\n"
    with socket.create_server(("127.0.0.1", 0), backlog=job.streams) as listener:
        say(port=listener.getsockname()[1])
        connections = [listener.accept()[0] for _ in range(job.streams)]
    for connection in connections:
        connection.recv(4096)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
    meter = Meter()
    for step in range(job.steps):
        for connection in connections:
            connection.send(chunk)
        if step == 0:
            await asyncio.sleep(SETTLE_S)
            meter.start()
        if step == job.steps - 2:
            meter.stop()
    for connection in connections:
        connection.send(b"0\r\n\r\n")
    meter.report_memory()
    await asyncio.sleep(SETTLE_S)


async def starlette(job: Job, http: Literal["h11", "httptools"]) -> None:
    """Starlette's `StreamingResponse` on uvicorn, which has h11; httptools is its faster extra."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import StreamingResponse
    from starlette.routing import Route

    queues = Queues(job)

    async def events() -> AsyncIterator[bytes]:
        async for data in queues.events():
            yield b"data: " + data + b"\n\n"

    async def stream(request: Request) -> StreamingResponse:
        await request.body()
        return StreamingResponse(events(), media_type="text/event-stream")

    application = Starlette(routes=[Route("/generate", stream, methods=["POST"])])
    config = uvicorn.Config(
        application, port=0, log_level="error", access_log=False, loop="asyncio", http=http
    )
    server = uvicorn.Server(config)
    config.load()
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110  (uvicorn has no event for it)
        await asyncio.sleep(0.01)
    say(port=server.servers[0].sockets[0].getsockname()[1])
    await serving


async def websockets(job: Job) -> None:
    """The `websockets` library's own asyncio server, without compression."""
    from websockets.asyncio.server import ServerConnection, serve

    queues = Queues(job)

    async def stream(connection: ServerConnection) -> None:
        await connection.recv()
        async for data in queues.events():
            await connection.send(data.decode())
        await connection.send('{"type":"done"}')

    async with serve(stream, "127.0.0.1", 0, compression=None) as server:
        say(port=next(iter(server.sockets)).getsockname()[1])
        await server.serve_forever()


SIDES: dict[str, Callable[[Job], Coroutine[Any, Any, None]]] = {
    "system calls": system_calls,
    "starlette": lambda job: starlette(job, "h11"),
    "starlette, httptools": lambda job: starlette(job, "httptools"),
    "websockets": websockets,
    # Characters a token, so that an event of one has about as many bytes.
    "/generate": lambda job: ours(job, 120),
    "/v1/completions": lambda job: ours(job, 7),
    "/v1/stream": lambda job: ours(job, 145),
}


def main() -> None:
    """Serve one side until killed."""
    side, streams, tokens, *flood = sys.argv[1:]
    configure("warning", "json")
    anyio.run(SIDES[side], Job(int(streams), int(tokens), bool(flood)))


if __name__ == "__main__":
    main()
