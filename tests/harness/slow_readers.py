"""Readers that take little of a talkative model's answer, and what came to them taken apart."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

import orjson

from plancha.contracts import Geometry
from plancha.testing.embedded import Limits
from plancha.testing.executors import ScriptExecutor
from plancha_text.byte_text import byte_text
from plancha_text.token_stream import TokenStream, TokenTexts

CHARACTERS = 1000
TOKENS = 400
PENDING_BYTES = 16 * 1024
PENDING_TOKENS = 32
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


class Listening(Protocol):
    @property
    def port(self) -> int: ...


class SlowReader:
    """A connection with a small receive buffer, that is read by hand."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.received = b""

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.connection, data)

    async def read(self, size: int) -> bytes:
        data = await asyncio.get_running_loop().sock_recv(self.connection, size)
        self.received += data
        return data

    def hurry(self) -> None:
        """Be slow no more."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)

    async def read_to(self, end: bytes) -> bytes:
        """Everything received so far, once it ends so."""
        while not self.received.endswith(end):
            assert await self.read(1 << 16), self.received[-200:]
        return self.received


@asynccontextmanager
async def slow_reader(server: Listening) -> AsyncIterator[SlowReader]:
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


def streams_of(server: Any) -> dict[int, Any]:
    found: dict[int, Any] = server.kernel.planner.sequences
    return found


def all_paused(server: Any, count: int) -> Callable[[], bool]:
    return lambda: [each.paused for each in streams_of(server).values()] == [True] * count


def is_reset(reader: SlowReader) -> bool:
    return reader.connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0
