"""Clients that read slowly or not at all: bounded memory, nothing lost, and an end in any case."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import attrs
import orjson
import pytest
from aiohttp import web

from plancha.contracts import Geometry
from plancha.testing.embedded import Limits
from plancha.testing.executors import ScriptExecutor
from plancha_text.byte_text import byte_text
from plancha_text.token_stream import TokenStream, TokenTexts
from plancha_transports.delivery import TOKENS_AT_ONCE
from plancha_transports.socket_writer import SocketWriter, chunk, open_body, text_message

CHARACTERS = 1000
TOKENS = 400
READERS = 50
PENDING_BYTES = 16 * 1024
PENDING_TOKENS = 32
IN_FLIGHT = 4  # steps that were under way when a stream was paused
SMALL = {"max_pending_bytes": PENDING_BYTES, "max_pending_tokens": PENDING_TOKENS}
LETTERS = [65 + index % 26 for index in range(TOKENS)]
LIMITS = Limits(max_sequences=64, max_batched_tokens=128, max_waiting=64)
STREAMS = [
    ("/generate", {"prompt": "x", "max_tokens": TOKENS}),
    ("/v1/completions", {"prompt": "x", "max_tokens": TOKENS, "stream": True}),
    (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "x"}], "max_tokens": TOKENS, "stream": True},
    ),
]


class LongText:
    """The byte tokenizer, but each token reads as its character a thousand times."""

    def __init__(self) -> None:
        self._text = byte_text()
        self._texts = TokenTexts.of([bytes([byte]) * CHARACTERS for byte in range(256)])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._text, name)

    def stream(self, **options: Any) -> TokenStream:
        return TokenStream(self._texts, (), 0)


def talkative() -> ScriptExecutor:
    """So many tokens for whoever asks."""
    geometry = Geometry(blocks=2048, context_length=512, vocabulary=264, stop_ids=(257,))
    return ScriptExecutor(lambda prompt: LETTERS, geometry)


class SlowReader:
    """A connection with a small receive buffer, that is read by hand."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.received = b""

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self._connection, data)

    async def read(self, size: int) -> bytes:
        data = await asyncio.get_running_loop().sock_recv(self._connection, size)
        self.received += data
        return data

    def hurry(self) -> None:
        """Be slow no more."""
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)

    async def read_to(self, end: bytes) -> bytes:
        """Everything received so far, once it ends so."""
        while not self.received.endswith(end):
            assert await self.read(1 << 16), self.received[-200:]
        return self.received


@asynccontextmanager
async def slow_reader(server: Any) -> AsyncIterator[SlowReader]:
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", server.port))
        yield SlowReader(connection)


async def ask(reader: SlowReader, path: str, body: Any) -> None:
    data = orjson.dumps(body)
    await reader.send(
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n".encode()
        + data
    )


async def upgrade(reader: SlowReader) -> None:
    await reader.send(
        b"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
        b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    await reader.read_to(b"\r\n\r\n")
    reader.received = b""


def client_frame(message: Any) -> bytes:
    payload = orjson.dumps(message)
    assert len(payload) < 126
    return bytes([0x81, 0x80 | len(payload), 0, 0, 0, 0]) + payload


def body_of(answer: bytes) -> bytes:
    """A chunked body, taken apart."""
    rest, body = answer.partition(b"\r\n\r\n")[2], b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return body


def events_of(answer: bytes) -> list[Any]:
    lines = body_of(answer).decode().split("\n")
    return [orjson.loads(line[6:]) for line in lines if line.startswith("data: {")]


async def read_messages(reader: SlowReader, kind: str, count: int) -> list[Any]:
    """A server's text messages (RFC 6455, section 5.2) up to the last of `count` of one kind."""
    found: list[Any] = []
    while sum(message["type"] == kind for message in found) < count:
        while (place := message_place(reader.received)) is None:
            assert await reader.read(1 << 16)
        found.append(orjson.loads(reader.received[place]))
        reader.received = reader.received[place.stop :]
    return found


def message_place(received: bytes) -> slice | None:
    """Where the first message's text is, if it is complete."""
    if len(received) < 10:
        return None
    assert received[0] == 0x81
    size, head = received[1], 2
    if size >= 126:
        wide = 2 if size == 126 else 8
        size, head = int.from_bytes(received[2 : 2 + wide], "big"), 2 + wide
    return slice(head, head + size) if len(received) >= head + size else None


def text_of(events: list[Any]) -> str:
    parts = []
    for event in events:
        choice = event["choices"][0] if "choices" in event else event
        parts.append(choice.get("text") or choice.get("delta", {}).get("content") or "")
    return "".join(parts)


def letters(text: str) -> list[int]:
    """The tokens that a text of whole tokens was made of."""
    assert len(text) % CHARACTERS == 0
    found = [text[start : start + CHARACTERS] for start in range(0, len(text), CHARACTERS)]
    assert all(set(part) == {part[0]} for part in found)
    return [ord(part[0]) for part in found]


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[SocketWriter]]:
    """Every writer that sent something."""
    found: set[SocketWriter] = set()
    send = SocketWriter.send

    def noticed(self: SocketWriter, data: bytes) -> None:
        found.add(self)
        send(self, data)

    monkeypatch.setattr(SocketWriter, "send", noticed)
    yield found


def buffered(writer: SocketWriter) -> int:
    return writer.transport().get_write_buffer_size()


def streams_of(server: Any) -> dict[int, Any]:
    found: dict[int, Any] = server.kernel.planner.sequences
    return found


def all_paused(server: Any, count: int) -> Callable[[], bool]:
    return lambda: [each.paused for each in streams_of(server).values()] == [True] * count


async def test_fifty_readers_that_stop_cost_little_and_hold_up_nobody(
    serve: Any, until: Any, writers: set[SocketWriter]
) -> None:
    async with serve(talkative(), text=LongText(), limits=LIMITS, **SMALL) as server:
        stopped: list[str] = []
        answers: list[tuple[str, list[Any]]] = []
        go_on = anyio.Event()

        async def stop_reading_for_a_while(path: str, body: Any) -> None:
            async with slow_reader(server) as reader:
                await ask(reader, path, body)
                await reader.read(1024)
                stopped.append(path)
                await go_on.wait()
                reader.hurry()
                answers.append((path, events_of(await reader.read_to(b"\r\n0\r\n\r\n"))))

        async with anyio.create_task_group() as tasks:
            for number in range(READERS):
                tasks.start_soon(stop_reading_for_a_while, *STREAMS[number % len(STREAMS)])
            await until(lambda: len(stopped) == READERS)
            events = await server.events(*STREAMS[1])
            assert letters(text_of([data for _, data in events if data != "[DONE]"])) == LETTERS
            await until(all_paused(server, READERS))
            for generation in server.gateway.outboxes.running.values():
                (stream,) = generation.streams
                assert PENDING_TOKENS <= len(stream.tokens) <= PENDING_TOKENS + IN_FLIGHT
            lagging = [writer for writer in writers if writer.full]
            assert len(lagging) == READERS
            most = PENDING_BYTES + 2 * CHARACTERS  # the event that filled it, with its frame
            assert all(buffered(writer) <= most for writer in lagging)
            go_on.set()

        for path, found in answers:
            assert letters(text_of(found)) == LETTERS
            most_at_once = max(len(text_of([event])) for event in found) // CHARACTERS
            assert most_at_once == 1 if path == "/generate" else 1 < most_at_once <= TOKENS_AT_ONCE
        await server.quiet()
        records = server.gateway._records.values()
        assert [record.outcome for record in records] == ["completed"] * (READERS + 1)


@pytest.mark.parametrize(("path", "body"), STREAMS)
async def test_a_reader_that_takes_nothing_for_too_long_is_told_so_when_it_reads(
    serve: Any, until: Any, path: str, body: Any
) -> None:
    options = {**SMALL, "stall_timeout_s": 0.1}
    async with (
        serve(talkative(), text=LongText(), limits=LIMITS, **options) as server,
        slow_reader(server) as reader,
    ):
        await ask(reader, path, body)
        await reader.read(1024)
        (record,) = server.gateway._records.values()
        await until(lambda: record.state == "done")
        assert record.outcome == "stalled"
        await server.quiet()
        answer = await reader.read_to(b"\r\n0\r\n\r\n")
        *tokens, last = events_of(answer)
        assert last["error"]["code"] == "stalled"
        assert "0.1 s" in last["error"]["message"]
        assert all("error" not in event for event in tokens)
        seen = letters(text_of(tokens))
        assert seen == LETTERS[: len(seen)]
        assert b"[DONE]" not in answer
        assert len(seen) < record.output_tokens < TOKENS


async def test_a_reader_that_never_comes_back_is_cut_off(serve: Any, until: Any) -> None:
    options = {**SMALL, "stall_timeout_s": 0.05}
    async with (
        serve(talkative(), text=LongText(), limits=LIMITS, **options) as server,
        slow_reader(server) as reader,
        slow_reader(server) as socket_reader,
    ):
        await ask(reader, *STREAMS[0])
        await reader.read(1024)
        await upgrade(socket_reader)
        await socket_reader.send(
            client_frame({"type": "generate", "id": "a", "prompt": "x", "max_tokens": TOKENS})
        )
        await until(lambda: len(server.gateway._records) == 2)
        records = server.gateway._records.values()
        await until(lambda: {record.outcome for record in records} == {"stalled"})
        await until(lambda: is_reset(reader))
        await until(lambda: is_reset(socket_reader))
        assert not reader.received.endswith(b"0\r\n\r\n")
        await server.quiet()


def is_reset(reader: SlowReader) -> bool:
    return reader._connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0


async def test_a_slow_socket_pauses_all_its_requests_and_they_all_come_to_their_end(
    serve: Any, until: Any
) -> None:
    async with (
        serve(talkative(), text=LongText(), limits=LIMITS, **SMALL) as server,
        slow_reader(server) as reader,
    ):
        await upgrade(reader)
        for name in "abc":
            message = {"type": "generate", "id": name, "prompt": name, "max_tokens": TOKENS}
            await reader.send(client_frame(message))
        await until(lambda: len(server.gateway._records) == 3)
        await until(all_paused(server, 3))
        events = await server.events(*STREAMS[0])
        assert letters(text_of([data for name, data in events if name is None])) == LETTERS
        messages = await read_messages(reader, "done", 3)
        for name in "abc":
            own = [message for message in messages if message["id"] == name]
            assert letters(text_of(own)) == LETTERS
            assert (own[0]["type"], own[-1]["type"]) == ("queued", "done")
            assert "tokens" in {message["type"] for message in own}
            counted = [message for message in own if message["type"] in ("token", "tokens")]
            indexes = [message["index"] for message in counted]
            sizes = [len(message.get("tokens", "1")) for message in counted]
            assert indexes == [sum(sizes[:place]) for place in range(len(sizes))]
        await server.quiet()


async def test_a_stalled_socket_ends_each_of_its_requests_with_an_error(
    serve: Any, until: Any
) -> None:
    options = {**SMALL, "stall_timeout_s": 0.1}
    async with (
        serve(talkative(), text=LongText(), limits=LIMITS, **options) as server,
        slow_reader(server) as reader,
    ):
        await upgrade(reader)
        for name in "ab":
            message = {"type": "generate", "id": name, "prompt": name, "max_tokens": TOKENS}
            await reader.send(client_frame(message))
        await until(lambda: len(server.gateway._records) == 2)
        records = server.gateway._records.values()
        await until(lambda: all(record.state == "done" for record in records))
        assert {record.outcome for record in records} == {"stalled"}
        messages = await read_messages(reader, "error", 2)
        ends = [message for message in messages if message["type"] == "error"]
        assert sorted(message["id"] for message in ends) == ["a", "b"]
        assert {message["error"]["code"] for message in ends} == {"stalled"}
        reader.received = b""
        await reader.send(
            client_frame({"type": "generate", "id": "a", "prompt": "x", "max_tokens": 2})
        )
        assert (await read_messages(reader, "done", 1))[-1]["id"] == "a"
        await server.quiet()


async def test_a_whole_answer_is_never_paused(serve: Any, until: Any) -> None:
    async with serve(talkative(), text=LongText(), limits=LIMITS, **SMALL) as server:
        body = {**STREAMS[1][1], "stream": False}
        async with slow_reader(server) as reader:
            await ask(reader, "/v1/completions", body)
            await until(lambda: len(server.gateway._records) == 1)
            (record,) = server.gateway._records.values()
            await until(lambda: record.state == "done")
            assert record.outcome == "completed"
            answer = (await reader.read_to(b"}")).partition(b"\r\n\r\n")[2]
        assert letters(orjson.loads(answer)["choices"][0]["text"]) == LETTERS


async def test_events_to_an_old_client_are_not_chunked(serve: Any, says: Any, connect: Any) -> None:
    async with serve(says("Hi")) as server, connect(server) as client:
        data = orjson.dumps({"prompt": "x"})
        await client.send(
            b"POST /generate HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(data), data)
        )
        answer = await client.receive_all()
        head, _, body = answer.partition(b"\r\n\r\n")
        assert b"chunked" not in head
        assert body.startswith(b"data: {")
        assert body.endswith(b"\n\n")
        assert b"event: done" in body


async def test_an_event_that_cannot_be_made_ends_its_own_stream_with_an_error(
    serve: Any, emits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from plancha_transports.generate_door import TokenEvents

    make, made = TokenEvents.tokens, []

    def fall_over(self: TokenEvents, tokens: list[int], texts: list[str]) -> bytes:
        made.append(tokens)
        if len(made) > 2:
            raise ZeroDivisionError("secret")
        return make(self, tokens, texts)

    monkeypatch.setattr(TokenEvents, "tokens", fall_over)
    async with serve(emits(65)) as server:
        events = await server.events("/generate", {"prompt": "x", "max_tokens": 50})
        assert events[-1][0] == "error"
        assert events[-1][1]["error"]["code"] == "engine_error"
        assert [name for name, _ in events[:-1]] == [None] * (len(events) - 1)
        await server.quiet()
        (record,) = server.gateway._records.values()
        assert record.outcome == "failed"


@asynccontextmanager
async def writing(handler: Callable[[web.Request], Any]) -> AsyncIterator[int]:
    """The port of an aiohttp server with one door."""
    application = web.Application()
    application.add_routes([web.get("/", handler)])
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@attrs.frozen
class Address:
    port: int


async def test_aiohttp_still_tells_when_a_connection_is_full_and_when_it_is_not() -> None:
    """Everything that `socket_writer` relies on, against aiohttp itself."""
    filled, drained = anyio.Event(), anyio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        writer = await open_body(request, response, PENDING_BYTES)
        assert not writer.full
        pieces = 0
        while not writer.full:
            writer.send(b"x" * 1000)
            pieces += 1
        assert PENDING_BYTES <= writer.transport().get_write_buffer_size() < PENDING_BYTES + 1100
        assert not await writer.drained(0.001)
        filled.set()
        assert await writer.drained(60)
        assert writer.transport().get_write_buffer_size() <= PENDING_BYTES // 4
        drained.set()
        writer.send(b"%d" % pieces)
        return response

    async with writing(handler) as port, slow_reader(Address(port)) as reader:
        await reader.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await filled.wait()
        answer = await reader.read_to(b"\r\n0\r\n\r\n")
        body = body_of(answer)
        assert drained.is_set()
        assert body.rstrip(b"0123456789") == b"x" * (1000 * int(body.lstrip(b"x")))


async def test_a_connection_that_goes_while_it_is_full_is_an_error() -> None:
    ended: list[BaseException] = []
    filled, over = anyio.Event(), anyio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        writer = await open_body(request, response, PENDING_BYTES)
        while not writer.full:
            writer.send(b"x" * 1000)
        filled.set()
        try:
            await writer.drained(60)
        except ConnectionError as error:
            ended.append(error)
            with pytest.raises(ConnectionError):
                writer.send(b"x")
            writer.abort()
        over.set()
        return response

    async with writing(handler) as port:
        async with slow_reader(Address(port)) as reader:
            await reader.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await filled.wait()
        await over.wait()
    assert len(ended) == 1


@attrs.define
class Trickle:
    """A transport whose buffer shrinks a little at each look, and then no more."""

    sizes: list[int]

    def get_write_buffer_size(self) -> int:
        return self.sizes.pop(0) if len(self.sizes) > 1 else self.sizes[0]


async def test_whoever_takes_a_little_is_not_stalled(monkeypatch: pytest.MonkeyPatch) -> None:
    forever = anyio.Event()
    transport = Trickle([90, 80, 80, 70, 70, 60, 60, 60])
    protocol = attrs.make_class("Protocol", {"writing_paused": attrs.field(default=True)})()
    stream = attrs.make_class("Stream", {"drain": attrs.field()})(forever.wait)
    writer = SocketWriter(protocol, stream, chunk)
    monkeypatch.setattr(SocketWriter, "transport", lambda self: transport)
    assert not await writer.drained(0.001)
    assert transport.sizes == [60]
    forever.set()


def test_pieces_are_framed_as_the_specifications_say() -> None:
    assert chunk(b"x" * 26) == b"1a\r\n" + b"x" * 26 + b"\r\n"
    assert text_message(b"x" * 125) == b"\x81\x7d" + b"x" * 125
    assert text_message(b"x" * 126) == b"\x81\x7e\x00\x7e" + b"x" * 126
    assert text_message(b"x" * 65536) == b"\x81\x7f\0\0\0\0\0\1\0\0" + b"x" * 65536
