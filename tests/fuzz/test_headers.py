"""Odd Host, Origin, Authorization and other headers: refused or passed over, never a 5xx."""

import asyncio
import random
from typing import Any

import pytest
from hypothesis import settings

pytestmark = pytest.mark.fuzz
LONG = settings.get_current_profile_name() == "fuzz"
ROUNDS = 10 if LONG else 4
AT_ONCE = 64
KEY = b"sk-fuzz"

NAMES = [
    *(b"Host", b"Origin", b"Authorization", b"X-Request-Id", b"X-Request-Timeout", b"Cookie"),
    *(b"Content-Type", b"Content-Length", b"Content-Encoding", b"Transfer-Encoding", b"Expect"),
    *(b"Upgrade", b"Connection", b"Sec-WebSocket-Protocol", b"Sec-WebSocket-Key", b"If-Match"),
    *(b"Range", b"Accept", b"Accept-Encoding", b"X-Forwarded-Host", b"Forwarded", b"Via", b"TE"),
    *(b"Access-Control-Request-Method", b"X-HTTP-Method-Override", b"Sec-WebSocket-Extensions"),
]
VALUES = [
    *(b"", b" ", b"null", b"*", b"localhost", b"localhost:80:80", b"127.0.0.1", b"[::1]:1", b"[::"),
    *(b"evil.example", b"localhost.evil.example", b"localhost@evil.example", b"http://[", b"//"),
    *(b"http://localhost", b"https://\xff", b"http://localhost:99999", b"file:///etc/passwd"),
    *(
        b"Bearer",
        b"Bearer ",
        b"Bearer  sk-fuzz",
        b"bearer sk-fuzz",
        b"Bearer sk-fuz",
        b"Basic eA==",
    ),
    *(b"Bearer \xff\xfe", b"Bearer " + b"x" * 5000, b"Bearer sk-fuzz, Bearer sk-fuzz", b"Bearer\t"),
    *(b"application/json", b"text/plain", b"application/json; charset=\xff", b"a/b/c", b";", b"/"),
    *(
        b'application/json; charset="',
        b"multipart/form-data; boundary=",
        b"-1",
        b"0",
        b"1e9",
        b"nan",
    ),
    *(b"inf", b"5", b"100-continue", b"gzip", b"chunked", b"websocket", b"h2c", b"upgrade, close"),
    *(b"plancha", b"key.", b"plancha, key.!!!", b"plancha, key.c2stZnV6eg", b"bytes=0-" * 500),
    *(
        b"permessage-deflate; client_max_window_bits=99",
        b"x" * 8000,
        b"\x01\x02",
        b"a\tb",
        b"%0d%0a",
    ),
]
REQUESTS = [
    (b"GET /v1/models", b""),
    (b"GET /v1/stream", b""),
    (b"GET /v1/requests/req-0", b""),
    (b"POST /v1/requests/req-0/cancel", b""),
    (b"POST /v1/completions", b'{"prompt":"Hi?","max_tokens":2}'),
    (b"POST /generate", b'{"prompt":"Hi?","max_tokens":2}'),
    (b"OPTIONS /generate", b""),
    (b"GET /health/ready", b""),
    (b"GET /openapi.json", b""),
]


def odd(chance: random.Random) -> bytes:
    line, body = chance.choice(REQUESTS)
    headers = {b"Host": b"localhost", b"Connection": b"close", b"Content-Length": b"%d" % len(body)}
    if chance.random() < 0.7:
        headers[b"Authorization"] = b"Bearer " + KEY
    if body:
        headers[b"Content-Type"] = b"application/json"
    found = [*headers.items()]
    for _ in range(chance.randint(1, 4)):
        name, value = chance.choice(NAMES), chance.choice(VALUES)
        if name == b"Expect" and line.startswith(b"OPTIONS"):
            continue  # aiohttp answers it before it gets to us, with a 417 or 500
        if chance.random() < 0.2:
            value += chance.randbytes(3)
        if chance.random() < 0.5:
            found = [pair for pair in found if pair[0] != name]
        found.insert(chance.randint(0, len(found)), (name, value))
    head = b"".join(b"%b: %b\r\n" % pair for pair in found)
    return b"%b HTTP/1.1\r\n%b\r\n%b" % (line, head, body)


@pytest.mark.parametrize("keys", [{}, {KEY.decode(): "a"}], ids=["anybody", "with keys"])
async def test_odd_headers_are_refused_or_passed_over(attack: Any, keys: dict[str, str]) -> None:
    table = {"allowed_origins": ["https://a.example"], "keepalive_s": 0.5, "body_timeout_s": 0.5}
    with attack(keys=keys, **table) as server:
        for seed in range(ROUNDS):
            chance = random.Random(seed)
            storm = [odd(chance) for _ in range(AT_ONCE)]
            answers = await asyncio.gather(*(server.exchange(each) for each in storm))
            for request, answer in zip(storm, answers, strict=True):
                assert all(status < 500 for status in server.statuses(answer)), (request, answer)
        server.assert_unharmed(KEY.decode() if keys else None)
        assert KEY.decode() not in str(server.lines())


@pytest.fixture(scope="module")
def locked(attack: Any) -> Any:
    with attack(keys={KEY.decode(): "a"}) as server:
        yield server


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"Authorization: Bearer sk-fuz\r\n",
        b"Authorization: Bearer sk-fuzzz\r\n",
        b"Authorization: Bearer SK-FUZZ\r\n",
        b"Authorization: Bearer\r\n",
        b"Authorization: Bearer \xff\r\n",
        b"Authorization: Basic c2stZnV6eg==\r\n",
        b"Authorization: sk-fuzz\r\n",
        b"Authorization: Bearer sk-fuzz\r\nAuthorization: Bearer sk-fuzz\r\n",
        b"Authorization: Bearer " + b"x" * 7000 + b"\r\n",
    ],
)
async def test_every_wrong_key_gets_the_very_same_answer(locked: Any, sent: bytes) -> None:
    ask = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%b\r\n"
    unknown = await locked.exchange(ask % b"Authorization: Bearer other\r\n")
    answer = await locked.exchange(ask % sent)
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert answer.partition(b"\r\n\r\n")[2] == unknown.partition(b"\r\n\r\n")[2]
