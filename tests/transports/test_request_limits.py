"""Sizes and times of requests are bounded, and a large one holds up nobody."""

import io
import json
import random
import threading
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from typing import Any

import anyio
import attrs
import numpy as np
import orjson
import pytest

from plancha.messages import Int32s
from plancha.testing.gate import GatedExecutor
from plancha_text.byte_text import byte_text
from plancha_transports.json_object import MOST_PARTS, parts

HELD_S = 60.0
CHAT = [{"role": "user", "content": "Hi?"}]


def structure(value: Any) -> int:
    """Lists, objects and keys, counted by walking the value."""
    if isinstance(value, dict):
        return 1 + len(value) + sum(structure(each) for each in value.values())
    if isinstance(value, list):
        return 1 + sum(structure(each) for each in value)
    return 0


def any_json(chance: random.Random, depth: int = 0) -> Any:
    match chance.randrange(6 if depth < 5 else 3):
        case 0:
            return chance.choice([None, True, 1.5, -3])
        case 1 | 2:
            return "".join(chance.choices('a"\\[]{}:,\n🙂', k=chance.randrange(8)))
        case 3 | 4:
            return [any_json(chance, depth + 1) for _ in range(chance.randrange(4))]
    names = ('"', "\\", "a:", "{", "\\\\")
    return {chance.choice(names): any_json(chance, depth + 1) for _ in range(chance.randrange(4))}


def test_parts_of_a_body_are_counted_outside_of_its_strings() -> None:
    for seed in range(500):
        value = any_json(random.Random(seed))
        for ensure_ascii in (True, False):
            text = json.dumps(value, ensure_ascii=ensure_ascii)
            assert parts(text) == parts(text.encode()) == structure(value), text


async def post(server: Any, path: str, body: bytes) -> tuple[int, Any]:
    headers = {"Content-Type": "application/json"}
    async with server.session.post(
        server.url + path, data=io.BytesIO(body), headers=headers
    ) as response:
        return response.status, orjson.loads(await response.read())


@pytest.mark.parametrize(
    "filling",
    [b"[]," * 2_000_000 + b"[]", b"[" * 1_000_000, b'{"a":' * 500_000],
    ids=["lists", "depth", "objects"],
)
async def test_a_body_that_is_dear_to_parse_is_refused_by_its_count(
    serve: Any, says: Any, filling: bytes
) -> None:
    async with serve(says("Hi")) as server:
        body = b'{"prompt":[' + filling + b"]}"
        status, answer = await post(server, "/v1/completions", body)
        assert (status, answer["error"]["code"]) == (400, "too_many_values")
        assert f"{MOST_PARTS:,}" in answer["error"]["message"]


async def test_a_text_of_brackets_is_a_text(serve: Any, says: Any) -> None:
    async with serve(says("Hi")) as server:
        body = orjson.dumps({"prompt": '[{"a":"b"}]' * 200_000})
        status, answer = await post(server, "/v1/completions", body)
        assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/generate"])
async def test_a_compressed_body_is_refused(serve: Any, says: Any, path: str) -> None:
    async with (
        serve(says("Hi")) as server,
        server.session.post(
            server.url + path,
            data=b"\x1f\x8b",
            headers={"Content-Type": "application/json", "Content-Encoding": "gzip"},
        ) as response,
    ):
        assert response.status == 415
        error = orjson.loads(await response.read())["error"]
        assert error["code"] == "unsupported_content_encoding"


async def test_who_asks_before_sending_a_body_is_told_to_go_on(
    serve: Any, says: Any, connect: Any
) -> None:
    body = b'{"prompt":"x","max_tokens":2}'
    async with serve(says("Hi")) as server, connect(server) as client:
        await client.send(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        assert await client.receive_until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(body)
        assert b"HTTP/1.1 200 " in await client.receive_until(b'"total_tokens"')


async def test_a_body_that_stops_arriving_is_a_408(serve: Any, says: Any, connect: Any) -> None:
    async with serve(says("Hi"), body_timeout_s=0.05) as server, connect(server) as client:
        await client.send(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
            b'Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"prompt'
        )
        head, _, body = (await client.receive_all()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in head.lower()
    assert orjson.loads(body)["error"]["code"] == "body_timeout"


async def test_an_idle_connection_is_closed(serve: Any, says: Any, connect: Any) -> None:
    async with serve(says("Hi"), keepalive_s=0.05) as server, connect(server) as client:
        await client.post("/v1/completions", {"prompt": "x"})
        await client.receive_until(b'"total_tokens"')
        await client.receive_all()


@attrs.define
class HeldText:
    """Chats take as long as the test wants; everything else is as ever."""

    text: Any = attrs.field(factory=byte_text)
    entered: threading.Event = attrs.field(factory=threading.Event)
    released: threading.Event = attrs.field(factory=threading.Event)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.text, name)

    def encode_chat(self, messages: Seq[Mapping[str, Any]]) -> Int32s:
        self.entered.set()
        assert self.released.wait(HELD_S)
        return np.asarray(self.text.encode_chat(messages), dtype=np.int32)


async def test_while_a_chat_is_tokenised_health_is_told_and_streams_go_on(
    serve: Any, emits: Any, connect: Any, until: Any
) -> None:
    held, gated = HeldText(), GatedExecutor(emits(*b"ABCDEFGH"))
    async with serve(gated, text=held) as server, connect(server) as streaming:
        await streaming.post("/generate", {"prompt": "x", "max_tokens": 8})
        await gated.run(1)
        await streaming.receive_until(b'"A"')
        async with anyio.create_task_group() as tasks:
            answers: list[int] = []

            async def chat() -> None:
                status, _ = await server.post("/v1/chat/completions", {"messages": CHAT})
                answers.append(status)

            tasks.start_soon(chat)
            await until(held.entered.is_set)
            for letter in b"BCDEFG":
                assert (await server.get("/health/live"))[0] == 200
                await gated.run(1)
                await streaming.receive_until(b'"%c"' % letter)
            assert answers == []
            held.released.set()
            gated.open()
        assert answers == [200]


async def test_beside_megabytes_and_thousands_of_messages_health_is_told_again_and_again(
    serve: Any, chains: Any
) -> None:
    messages = [{"role": "user", "content": "What is it? " * 20}] * 5000
    async with serve(chains(), text=byte_text()) as server:
        done: list[int] = []
        healthy = 0

        async def ask(path: str, body: Any) -> None:
            status, _ = await post(server, path, orjson.dumps(body))
            done.append(status)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, "/v1/completions", {"prompt": "x" * (8 * 2**20 - 100)})
            tasks.start_soon(ask, "/v1/chat/completions", {"messages": messages})
            while len(done) < 2:
                assert (await server.get("/health/live"))[0] == 200
                healthy += 1
    assert done == [400, 400]
    assert healthy >= 10


async def test_bodies_count_together_until_they_are_tokens(
    serve: Any, says: Any, until: Any
) -> None:
    held = HeldText()
    messages = [{"role": "user", "content": "x" * 600_000}]
    async with serve(says("Hi"), text=held, max_body="1MiB", max_bodies="1MiB") as server:
        async with anyio.create_task_group() as tasks:
            statuses: list[int] = []

            async def chat() -> None:
                body = orjson.dumps({"messages": messages})
                statuses.append((await post(server, "/v1/chat/completions", body))[0])

            tasks.start_soon(chat)
            await until(held.entered.is_set)
            await chat()
            assert statuses == [429]
            held.released.set()
        assert statuses == [429, 400]  # the first one was too long after all
        await chat()
        assert statuses == [429, 400, 400]
