"""Frames that are nearly WebSocket (RFC 6455): a close with its code, and nobody else notices."""

import asyncio
import random
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import orjson
import pytest
from hypothesis import settings

pytestmark = pytest.mark.fuzz
LONG = settings.get_current_profile_name() == "fuzz"
ROUNDS = 60 if LONG else 6
AT_ONCE = 64
HANG_S = 60.0

HANDSHAKE = (
    b"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
ASK = orjson.dumps({"type": "generate", "id": "a", "prompt": "Hi?", "max_tokens": 4})
CANCEL = orjson.dumps({"type": "cancel", "id": "a"})
GOODBYE = struct.pack(">H", 1000)


def frame(
    opcode: int, payload: bytes = b"", *, fin: bool = True, rsv: int = 0, length: int | None = None
) -> bytes:
    """As a client sends it, masked with zeros; `length` may lie."""
    size = len(payload) if length is None else length
    head = bytes([(0x80 if fin else 0) | rsv << 4 | opcode])
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 2**16:
        head += bytes([0x80 | 126]) + struct.pack(">H", size)
    else:
        head += bytes([0x80 | 127]) + struct.pack(">Q", size)
    return head + bytes(4) + payload


class Socket:
    """A connection after its handshake, and the frames it gets."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        with suppress(ConnectionError):
            await self.writer.drain()

    async def receive(self) -> tuple[int, bytes]:
        """Opcode and payload. Raises `IncompleteReadError` at the end of the connection."""
        first, second = await self._reader.readexactly(2)
        size = second & 127
        if size == 126:
            (size,) = struct.unpack(">H", await self._reader.readexactly(2))
        elif size == 127:
            (size,) = struct.unpack(">Q", await self._reader.readexactly(8))
        return first & 15, await self._reader.readexactly(size)

    async def close_code(self) -> int | None:
        """Of the server's close; None when it just went."""
        try:
            async with asyncio.timeout(HANG_S):
                while True:
                    opcode, payload = await self.receive()
                    if opcode == CLOSE:
                        return int(struct.unpack(">H", payload[:2])[0])
        except (asyncio.IncompleteReadError, ConnectionError):
            return None


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Socket]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(HANDSHAKE)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 ")
        yield Socket(reader, writer)
    finally:
        writer.transport.abort()
        with suppress(ConnectionError):
            await writer.wait_closed()


BROKEN: dict[str, tuple[bytes, int]] = {
    "a reserved opcode": (frame(3, b"x"), 1002),
    "a reserved control opcode": (frame(11, b"x"), 1002),
    "a reserved bit": (frame(TEXT, ASK, rsv=4), 1002),
    "all reserved bits": (frame(TEXT, ASK, rsv=7), 1002),
    "a continuation of nothing": (frame(CONTINUATION, b"x"), 1002),
    "a message inside another": (frame(TEXT, b"{", fin=False) + frame(TEXT, b"}"), 1002),
    "a ping in fragments": (frame(PING, b"x", fin=False), 1002),
    "a ping that is too long": (frame(PING, b"x" * 126), 1002),
    "half a close code": (frame(CLOSE, b"\x03"), 1002),
    "a close code that none may send": (frame(CLOSE, struct.pack(">H", 1005)), 1002),
    "a close reason that is no text": (frame(CLOSE, GOODBYE + b"\xff"), 1007),
    "text that is none": (frame(TEXT, b"\xff\xfe"), 1007),
    "half a character": (frame(TEXT, b'{"prompt":"\xc3'), 1007),
    "half a surrogate pair in bytes": (frame(TEXT, b'{"prompt":"\xed\xa0\x80"}'), 1007),
    "a binary message": (frame(BINARY, ASK), 1003),
    "an enormous length": (frame(TEXT, b"{", length=2**62), 1009),
    "a negative length": (frame(TEXT, b"{", length=2**64 - 1), 1009),
    "a message over the limit": (frame(TEXT, b" " * 70_000), 1009),
    "fragments over the limit": (
        frame(TEXT, b" " * 1000, fin=False) + frame(CONTINUATION, b" " * 1000, fin=False) * 70,
        1009,
    ),
    "a normal close": (frame(CLOSE, GOODBYE), 1000),
}


@pytest.fixture(scope="module")
def server(attack: Any) -> Any:
    with attack(ws_max_message="64KiB") as server:
        yield server


@pytest.mark.parametrize("name", BROKEN)
async def test_what_breaks_the_protocol_is_closed_with_its_code(server: Any, name: str) -> None:
    data, code = BROKEN[name]
    async with connected(server.port) as socket:
        await socket.send(data)
        assert await socket.close_code() == code


async def test_a_close_reason_fits_into_its_frame(server: Any) -> None:
    async with connected(server.port) as socket:
        await socket.send(frame(BINARY))
        opcode, payload = await socket.receive()
    assert opcode == CLOSE
    assert 0 < len(payload[2:]) <= 123
    assert payload[2:].decode()


async def test_mutated_frames_end_one_socket_at_most(server: Any) -> None:
    for seed in range(ROUNDS):
        chance = random.Random(seed)
        storm = [mutated(chance) for _ in range(AT_ONCE)]
        await asyncio.gather(*(talk(server.port, each) for each in storm))
        server.assert_unharmed()


async def talk(port: int, data: bytes) -> None:
    """Send all of it and a goodbye; the server must end the connection by itself."""
    async with connected(port) as socket:
        await socket.send(data + frame(CLOSE, GOODBYE))
        with suppress(OSError):
            socket.writer.write_eof()  # it may be waiting for more of a frame
        await socket.close_code()


def mutated(chance: random.Random) -> bytes:
    seeds = [
        frame(TEXT, ASK),
        frame(TEXT, ASK[:20], fin=False) + frame(CONTINUATION, ASK[20:]),
        frame(TEXT, ASK) + frame(TEXT, CANCEL),
        frame(PING, b"x") + frame(TEXT, ASK),
        frame(PONG) + frame(TEXT, b"[" * 2000),
        frame(TEXT, ASK) * 3,
    ]
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.randint(1, 5)):
        at = chance.randrange(len(data))
        match chance.randrange(5):
            case 0:
                data[at] ^= 1 << chance.randrange(8)
            case 1:
                data[at:at] = chance.randbytes(chance.randint(1, 12))
            case 2:
                del data[at : at + chance.randint(1, 8)]
            case 3:
                data[at:at] = data[at : at + 20] * chance.randint(1, 30)
            case 4:
                data += chance.choice(seeds)
        data = data or bytearray(b"\0")
    return bytes(data)


async def test_a_message_in_a_hundred_thousand_fragments_is_one_message(attack: Any) -> None:
    with attack() as server:
        async with connected(server.port) as socket:
            parts = frame(TEXT, b"x", fin=False) + frame(CONTINUATION, b"x", fin=False) * 100_000
            await socket.send(parts + frame(CONTINUATION, b"x"))
            async with asyncio.timeout(HANG_S):
                opcode, payload = await socket.receive()
        assert (opcode, orjson.loads(payload)["type"]) == (TEXT, "error")
        server.assert_unharmed()


@pytest.mark.parametrize(
    "data",
    [frame(PING, b"x" * 125), frame(TEXT, b"?"), frame(TEXT, CANCEL), frame(PONG, b"x")],
    ids=["pings", "mistakes", "cancels", "pongs"],
)
async def test_who_floods_and_never_reads_is_no_longer_read(attack: Any, data: bytes) -> None:
    with attack() as server:
        async with connected(server.port) as socket:
            with suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(2):
                    for _ in range(200):
                        socket.writer.write(data * 2000)
                        await socket.writer.drain()
            server.assert_unharmed()
