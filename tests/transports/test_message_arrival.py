"""WebSocket messages that come in pieces: how long each has to arrive, and what ends it."""

import random
import struct
from contextlib import suppress
from typing import Any

import aiohttp
import anyio
import orjson
import pytest

from plancha.testing.gate import GatedExecutor
from plancha_transports.message_arrival import MessageClock

HANDSHAKE = (
    b"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
CONTINUATION, TEXT, CLOSE, PING, PONG = 0, 1, 8, 9, 10
ASK = orjson.dumps({"type": "generate", "id": "a", "prompt": "x", "max_tokens": 3})
REASON = b"the message did not arrive within 0.2 s"


def frame(opcode: int, payload: bytes = b"", *, final: bool = True, masked: bool = True) -> bytes:
    """RFC 6455, section 5.2; the mask is zero."""
    size, mask = len(payload), 0x80 if masked else 0
    head = bytes([(0x80 if final else 0) | opcode])
    if size < 126:
        head += bytes([mask | size])
    elif size < 2**16:
        head += bytes([mask | 126]) + struct.pack(">H", size)
    else:
        head += bytes([mask | 127]) + struct.pack(">Q", size)
    return head + (bytes(4) if masked else b"") + payload


def conversation(chance: random.Random) -> tuple[bytes, list[tuple[int, int]]]:
    """Messages of some fragments with control frames between, and where each begins and ends.

    A control frame that stands alone counts as a message, one within a message does not.
    """
    sent, places = b"", []
    for _ in range(chance.randrange(1, 6)):
        begin = len(sent)
        if chance.random() < 0.3:
            sent += frame(chance.choice((PING, PONG)), bytes(chance.randrange(20)))
        else:
            fragments = chance.randrange(1, 5)
            for place in range(fragments):
                payload = bytes(chance.choice((0, 1, 125, 126, 300, 70_000)))
                opcode = CONTINUATION if place else TEXT
                masked = chance.random() < 0.9
                final = place == fragments - 1
                sent += frame(opcode, payload, final=final, masked=masked)
                if not final and chance.random() < 0.5:
                    sent += frame(PING, b"p")
        places.append((begin, len(sent)))
    return sent, places


@pytest.mark.parametrize("most", [1, 3, 2000, 10**6])
def test_a_message_is_on_its_way_from_its_first_byte_to_its_last(most: int) -> None:
    for seed in range(3 if most < 10 else 40):
        chance = random.Random(seed)
        sent, places = conversation(chance)
        clock, place, arrival = MessageClock(), 0, {}
        while place < len(sent):
            size = chance.randint(1, most)
            now = float(place)
            for byte in range(place, min(place + size, len(sent))):
                arrival[byte] = now
            clock.feed(sent[place : place + size], now)
            place += size
            begun = [begin for begin, end in places if begin < place < end]
            assert clock.begun_s == (arrival[begun[0]] if begun else None), (seed, place)


@pytest.mark.parametrize("length", [2**62, 2**64 - 1])
def test_a_length_that_lies_is_a_message_that_never_ends(length: int) -> None:
    clock = MessageClock()
    clock.feed(bytes([0x81, 0xFF]) + struct.pack(">Q", length) + bytes(4), 1.0)
    for second in range(2, 5):
        clock.feed(bytes(1000), float(second))
    assert clock.begun_s == 1.0


async def upgraded(client: Any) -> None:
    await client.send(HANDSHAKE)
    await client.receive_until(b"\r\n\r\n")
    client.received = b""


async def test_a_message_that_trickles_in_is_given_up_and_nobody_else_notices(
    serve: Any, emits: Any, connect: Any
) -> None:
    gated = GatedExecutor(emits(*b"ABC"))
    async with (
        serve(gated, body_timeout_s=0.2) as server,
        server.session.ws_connect(server.url + "/v1/stream") as other,
        connect(server) as client,
    ):
        await other.send_json({"type": "generate", "id": "o", "prompt": "x", "max_tokens": 3})
        await upgraded(client)
        await client.send(frame(TEXT, ASK))  # so that there is a request to be cancelled
        await client.receive_until(b'"queued"')
        client.received = b""
        async with anyio.create_task_group() as tasks:

            async def trickle() -> None:
                with suppress(anyio.BrokenResourceError):
                    await client.send(frame(TEXT, b"{", final=False))
                    while True:
                        await client.send(frame(PING, b"alive"))
                        await client.send(frame(CONTINUATION, b" ", final=False))
                        await anyio.sleep(0.01)

            tasks.start_soon(trickle)
            closed = await client.receive_until(REASON)
            tasks.cancel_scope.cancel()
        place = closed.index(b"\x88")
        assert closed[place + 1] == 2 + len(REASON) < 126
        assert closed[place + 2 :] == struct.pack(">H", 1008) + REASON
        gated.open()
        said: list[Any] = []
        while not said or said[-1]["type"] != "done":
            said.append(orjson.loads((await other.receive()).data))
        assert [each["text"] for each in said if each["type"] == "token"] == ["A", "B", "C"]
        await server.quiet()
        outcomes = [record.outcome for record in server.gateway._records.values()]
        assert outcomes == ["completed", "cancelled"]


async def test_a_message_in_many_pieces_is_as_good_as_any(
    serve: Any, emits: Any, connect: Any
) -> None:
    async with serve(emits(*b"ABC")) as server, connect(server) as client:
        pieces = [frame(TEXT, ASK[:1], final=False)]
        pieces += [frame(CONTINUATION, bytes([byte]), final=False) for byte in ASK[1:]]
        await client.send(HANDSHAKE + b"".join(pieces))  # not even waiting for the upgrade
        await client.send(frame(PING, b"between"))
        await client.send(frame(CONTINUATION))
        heard = await client.receive_until(b'"done"')
        assert b"\x8a\x07between" in heard


async def test_a_socket_that_says_nothing_is_not_slow(serve: Any, says: Any) -> None:
    async with (
        serve(says("Hi"), body_timeout_s=0.001) as server,
        server.session.ws_connect(server.url + "/v1/stream") as socket,
    ):
        for name in ("a", "b"):
            await anyio.sleep(0.02)  # longer than a message may take
            await socket.send_json({"type": "generate", "id": name, "prompt": "x"})
            while (message := await socket.receive()).type is aiohttp.WSMsgType.TEXT:
                if orjson.loads(message.data)["type"] == "done":
                    break
            assert not socket.closed
