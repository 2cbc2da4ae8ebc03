"""Orders and races that no scripted model meets: here the test itself is the worker."""

import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import attrs
import numpy as np
import orjson
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from plancha.failure import Failure
from plancha.gateway import Gateway
from plancha.links.memory_link import MemoryLink
from plancha.messages import (
    Bill,
    Cancel,
    Controls,
    Downstream,
    Finished,
    Frame,
    Int32s,
    Joined,
    Load,
    Rejected,
    Settled,
    Submit,
    Upstream,
)

IDLE = Load(total_blocks=1, free_blocks=1, running=0, waiting=0)


@attrs.define(eq=False)
class OneTokenText:
    """Every prompt is one token, every token a star; `encode` waits for a `permit` if there is."""

    vocabulary: int = 256
    permit: threading.Event | None = None
    encoding: threading.Event = attrs.field(factory=threading.Event)

    def has_text(self, token: int) -> bool:
        return 0 <= token < self.vocabulary

    def token_bytes(self, token: int) -> bytes:
        return b"*"

    def least_tokens(self, prompt: str) -> int:
        return 1

    def encode(self, prompt: str) -> Int32s:
        self.encoding.set()
        if self.permit is not None:
            assert self.permit.wait(60)
        return np.array([1], np.int32)

    def encode_chat(self, messages: Sequence[Mapping[str, Any]]) -> Int32s:
        return self.encode("")

    def stream(self, **options: Any) -> "OneTokenText":
        return self

    def push(self, token: int) -> str:
        return "*"

    stopped = False

    def finish(self) -> str:
        return ""


@attrs.define(eq=False)
class Worker:
    """Both ends of the gateway's channels."""

    gateway: Gateway
    upstream: MemoryObjectReceiveStream[Upstream]
    downstream: MemoryObjectSendStream[Downstream]

    async def submitted(self) -> Submit:
        message = await self.upstream.receive()
        assert isinstance(message, Submit)
        return message

    async def cancelled(self) -> int:
        message = await self.upstream.receive()
        assert isinstance(message, Controls)
        (control,) = message.controls
        assert isinstance(control, Cancel)
        return control.stream

    async def emit(self, stream: int, *finished: Finished) -> None:
        tokens = np.array([42], np.int32)
        streams = np.array([stream], np.int64)
        await self.downstream.send(Frame(streams, tokens, (Joined(stream, 0),), finished, IDLE))
        for end in finished:
            bill = Bill(
                streams=(stream,),
                input_tokens=end.prompt_tokens,
                cached_tokens=0,
                output_tokens=end.output_tokens,
                outcome="completed",
                finished_s=0.0,
            )
            await self.downstream.send(Settled((bill,)))


@asynccontextmanager
async def worker_of(text: Any) -> AsyncIterator[Worker]:
    upstream_in, upstream = anyio.create_memory_object_stream[Upstream](16)
    downstream, downstream_out = anyio.create_memory_object_stream[Downstream](16)
    gateway = Gateway("tiny")
    gateway.open(text, MemoryLink(upstream_in, downstream_out), 10**9)
    with upstream_in, upstream, downstream, downstream_out:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(gateway.fanout, downstream_out)
            tasks.start_soon(gateway.control)
            yield Worker(gateway, upstream, downstream)
            tasks.cancel_scope.cancel()


async def test_a_reader_that_leaves_while_a_write_to_it_waits(
    listen: Any, connect: Any, until: Any
) -> None:
    """Seven megabytes of echo fill every buffer on the way; then it resets the connection."""
    async with (
        worker_of(OneTokenText()) as worker,
        listen(worker.gateway, None) as server,
        connect(server) as client,
    ):
        body = {"prompt": "x" * (7 * 2**20), "echo": True, "stream": True}
        await client.post("/v1/completions", body)
        (stream,) = (await worker.submitted()).streams
        await worker.emit(stream)
        await client.receive_until(b"data: ")
        for _ in range(3):
            await worker.emit(stream)
        outbox = worker.gateway.outboxes._streams[stream][1].tokens
        await until(lambda: len(outbox) == 3)  # nobody takes them: the reader does not read
        await client.reset()
        with anyio.fail_after(60):
            assert await worker.cancelled() == stream


async def test_a_reader_that_comes_back_in_time_gets_everything(
    listen: Any, connect: Any, until: Any
) -> None:
    async with (
        worker_of(OneTokenText()) as worker,
        listen(worker.gateway, None) as server,
        connect(server) as client,
    ):
        prompt = "x" * (7 * 2**20)
        body = {"prompt": prompt, "echo": True, "stream": True, "max_tokens": 5}
        await client.post("/v1/completions", body)
        (stream,) = (await worker.submitted()).streams
        for _ in range(4):
            await worker.emit(stream)
        await worker.emit(stream, Finished(stream, "length", 1, 5))
        answer = await client.receive_until(b"[DONE]")
    text = "".join(
        orjson.loads(line[6:])["choices"][0]["text"]
        for line in answer.split(b"\n")
        if line.startswith(b"data: {")
    )
    assert text == prompt + "*" * 5


async def test_a_client_that_leaves_during_tokenising_is_never_submitted(
    listen: Any, connect: Any
) -> None:
    text = OneTokenText(permit=threading.Event())
    assert text.permit is not None
    async with worker_of(text) as worker, listen(worker.gateway, None) as server:
        async with connect(server) as client:
            await client.post("/generate", {"prompt": "first"})
            await anyio.to_thread.run_sync(text.encoding.wait)
            await client.reset()
        await server.get("/health/live")  # by now the server has seen the reset
        async with connect(server) as second:
            await second.post("/generate", {"prompt": "second"})
            text.permit.set()
            submit = await worker.submitted()
            await worker.emit(submit.streams[0], Finished(submit.streams[0], "length", 1, 1))
            await second.receive_until(b"event: done")
        assert len(worker.gateway._records) == 1


async def test_a_socket_request_cancelled_during_tokenising_is_never_submitted(
    listen: Any,
) -> None:
    text = OneTokenText(permit=threading.Event())
    assert text.permit is not None
    async with (
        worker_of(text) as worker,
        listen(worker.gateway, None) as server,
        server.session.ws_connect(server.url + "/v1/stream") as socket,
    ):
        await socket.send_json({"type": "generate", "id": "a", "prompt": "x"})
        await anyio.to_thread.run_sync(text.encoding.wait)
        await socket.send_json({"type": "cancel", "id": "a"})
        text.permit.set()
        answer = await socket.receive_json()
        assert (answer["type"], answer["id"]) == ("cancelled", "a")
        assert answer["usage"] == {"input_tokens": 0, "cached_tokens": 0, "output_tokens": 0}
        assert not worker.gateway._records


async def test_a_refusal_by_the_worker_is_a_plain_status(listen: Any) -> None:
    async with worker_of(OneTokenText()) as worker, listen(worker.gateway, None) as server:
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await server.refusal("/generate", {"prompt": "x"}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            submit = await worker.submitted()
            failure = Failure("busy", "The queue is full.", None, "queue_full")
            await worker.downstream.send(Rejected(submit.streams, failure))
        assert (answers[0][0], answers[0][1]["code"]) == (429, "queue_full")
        assert worker.gateway.running == 0


async def test_a_cancel_that_crosses_the_natural_end_changes_nothing(listen: Any) -> None:
    async with (
        worker_of(OneTokenText()) as worker,
        listen(worker.gateway, None) as server,
        server.session.ws_connect(server.url + "/v1/stream") as socket,
    ):
        await socket.send_json({"type": "generate", "id": "a", "prompt": "x"})
        submit = await worker.submitted()
        await worker.emit(submit.streams[0], Finished(submit.streams[0], "stop", 1, 1, hidden=True))
        await socket.send_json({"type": "cancel", "id": "a"})
        messages = [await socket.receive_json()]
        while messages[-1]["type"] not in ("done", "cancelled", "error"):
            messages.append(await socket.receive_json())
        assert messages[-1]["type"] == "done"
        await socket.send_json({"type": "cancel", "id": "a"})
        await socket.send_json({"type": "generate", "id": "b", "prompt": ""})
        assert (await socket.receive_json())["id"] == "b"
        (record, *_) = worker.gateway._records.values()
        assert record.outcome == "completed"
