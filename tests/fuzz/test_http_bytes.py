"""Bytes that are nearly HTTP: refused or answered, each connection ends, nobody else notices."""

import asyncio
import gzip
import random
from contextlib import suppress
from typing import Any

import orjson
import pytest
from hypothesis import settings

pytestmark = pytest.mark.fuzz
LONG = settings.get_current_profile_name() == "fuzz"
ROUNDS = 20 if LONG else 5
AT_ONCE = 64
HANG_S = 60.0

QUICK = {"keepalive_s": 0.5, "body_timeout_s": 0.5}
"""So that the server is the one who ends what never would."""

BODY = orjson.dumps({"prompt": "Hi?", "max_tokens": 4, "stream": True})
POST = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
SEEDS = [
    b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n",
    b"GET /v1/requests/req-0/usage HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: a\r\n\r\n",
    b"OPTIONS /generate HTTP/1.1\r\nHost: localhost\r\nOrigin: https://a.example\r\n\r\n",
    POST + b"Content-Length: %d\r\n\r\n%b" % (len(BODY), BODY),
    POST + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY),
    POST
    + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b"
    % (len(gzip.compress(BODY)), gzip.compress(BODY)),
    b"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
]
LIVE = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
WORDS = [
    *(b"\r\n", b"\n", b"\r", b"\0", b" ", b":", b"\t", b"\xff", b"%00", b"%", b"../", b"//", b"?"),
    *(b"HTTP/9.9", b"HTTP/0.9", b"GET ", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01"),
    b"Content-Length: 99999999999999999999\r\n",
    b"Content-Length: -1\r\n",
    b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Content-Encoding: deflate\r\n",
    b"Content-Encoding: br\r\n",
    b"Expect: 100-continue\r\n",
    b"Connection: close\r\n",
    b"Connection: Upgrade\r\nUpgrade: h2c\r\n",
    b"Host: [::1\r\n",
    b"Cookie: " + b"a=b; " * 500 + b"\r\n",
    b"ffffffffffffffff\r\n",
    b"0\r\n\r\n",
    b"A" * 9000,
]


def mutated(chance: random.Random) -> bytes:
    request = bytearray(chance.choice(SEEDS))
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(request) + 1)
        end = min(len(request), at + chance.randint(1, 30))
        match chance.randrange(6):
            case 0:
                request[at:at] = chance.choice(WORDS)
            case 1:
                del request[at:end]
            case 2:
                request[at:at] = chance.randbytes(chance.randint(1, 8))
            case 3 if at < len(request):
                request[at] ^= 1 << chance.randrange(8)
            case 4:
                request[at:at] = request[at:end] * chance.randint(1, 20)
            case 5:
                request += chance.choice(SEEDS)
    return bytes(request)


async def test_mutated_requests_are_refused_or_answered(attack: Any) -> None:
    with attack(**QUICK) as server:
        for seed in range(ROUNDS):
            chance = random.Random(seed)
            storm = [mutated(chance) for _ in range(AT_ONCE)]
            answers = await asyncio.gather(
                *(server.exchange(each, chance.choice((1, 1, 5))) for each in storm)
            )
            for request, answer in zip(storm, answers, strict=True):
                assert answer == b"" or answer.startswith(b"HTTP/"), (request, answer)
                broken = [status for status in server.statuses(answer) if status >= 500]
                assert broken == [], (request, answer)
                assert b"text/plain" not in answer, (request, answer)
            server.assert_unharmed()


FLOODS = {
    "a long request line": b"GET /" + b"a" * 2**20 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a long query": b"GET /v1/models?" + b"a=b&" * 2**18 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a large header": b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"b" * 2**20 + b"\r\n\r\n",
    "many headers": b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 100_000 + b"\r\n",
    "a header without an end": b"GET / HTTP/1.1\r\nA: " + b"b" * 2**22,
    "many trailers": POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"A: b\r\n" * 100_000,
    "a long chunk extension": POST
    + b"Transfer-Encoding: chunked\r\n\r\n1;"
    + b"x" * 2**20
    + b"\r\n",
    "a chunk that lies": POST + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}",
    "a length that lies": POST + b"Content-Length: 9999999\r\n\r\n{}",
    "two lengths": POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x",
    "length and chunks": POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
    "zeros": b"\0" * 2**20,
    "a compressed gigabyte": b"",
}


@pytest.fixture(scope="module")
def quick(attack: Any) -> Any:
    with attack(**QUICK) as server:
        yield server


@pytest.mark.parametrize("name", FLOODS)
async def test_a_flood_ends_with_a_refusal(quick: Any, name: str) -> None:
    data = FLOODS[name] or compressed_gigabyte()
    answers = await asyncio.gather(*(quick.exchange(data) for _ in range(8)))
    for answer in answers:
        for status in quick.statuses(answer):
            assert status in (400, 404, 408, 413, 415), answer[:500]
    quick.assert_unharmed()


def compressed_gigabyte() -> bytes:
    """A body that is 128 times the limit once unpacked."""
    member = gzip.compress(b" " * 2**26)
    body = member * 16
    return POST + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


async def test_requests_sent_faster_than_answers_are_read_wait_on_the_line(attack: Any) -> None:
    ask = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with attack() as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(ask * 500_000)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await writer.drain()  # the server has stopped reading
        server.assert_unharmed()
        writer.transport.abort()


async def heard(reader: asyncio.StreamReader) -> bytes:
    """All that comes until the connection ends, in whatever way."""
    found = b""
    with suppress(ConnectionError):
        while more := await reader.read(2**16):
            found += more
    return found


@pytest.mark.parametrize("begun", [b"GET /health/live HTTP/1.1\r\nHost: local", b"", POST])
async def test_a_head_that_trickles_in_for_ever_is_given_up(attack: Any, begun: bytes) -> None:
    with attack(keepalive_s=1.0) as server:

        async def trickle() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(begun)
            closed = asyncio.create_task(heard(reader))
            while not closed.done():
                if begun:
                    writer.write(b"X")
                await asyncio.sleep(0.05)
            writer.transport.abort()

        async with asyncio.timeout(HANG_S):
            await asyncio.gather(*(trickle() for _ in range(200)))
        server.assert_unharmed()


async def test_a_body_that_trickles_in_for_ever_is_a_408_and_the_end(attack: Any) -> None:
    with attack(body_timeout_s=0.5) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(POST + b"Content-Length: 100000\r\n\r\n")
        answer = asyncio.create_task(heard(reader))
        async with asyncio.timeout(HANG_S):
            while not answer.done():
                writer.write(b" ")
                await asyncio.sleep(0.01)
        head, _, body = answer.result().partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 408 ")
        assert b"connection: close" in head.lower()
        assert orjson.loads(body)["error"]["code"] == "body_timeout"
        writer.transport.abort()
        server.assert_unharmed()


async def test_more_connections_than_allowed_are_told_so(attack: Any) -> None:
    with attack(max_connections=20) as server:
        held = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(20)]
        refused = await server.exchange(b"")
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"too_many_connections" in refused
        for _, writer in held:
            writer.transport.abort()
        while b" 200 OK" not in await server.exchange(LIVE):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        server.assert_unharmed()


async def test_uploads_held_at_once_are_bounded_together(attack: Any) -> None:
    upload = POST + b"Content-Length: 1000000\r\n\r\n" + b" " * 900_000
    with attack(max_body="1MiB", max_bodies="8MiB", body_timeout_s=2.0) as server:
        answers = await asyncio.gather(*(server.exchange(upload) for _ in range(16)))
        found = [status for answer in answers for status in server.statuses(answer)]
        assert set(found) == {408, 429}
        assert found.count(408) <= 9
        server.assert_unharmed()
