"""The server's life in this process: real transports, kernel and signals, foretold tokens."""

import importlib
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import attrs
import pytest

from plancha.contracts import LoadError, Text
from plancha.testing.gate import GatedExecutor
from plancha_app.deployment import Deployment, understand
from plancha_app.serve import Server
from plancha_engine.report import Report
from plancha_text.byte_text import byte_text

HANG_S = 30

EXECUTOR = """
import threading
from plancha.contracts import Geometry, LoadError
from plancha.testing.executors import ScriptExecutor
from plancha.testing.gate import GatedExecutor

GEOMETRY = Geometry(blocks=64, context_length=256, vocabulary=264, stop_ids=(257,))
loading_began, loading_may_end = threading.Event(), threading.Event()
gated = GatedExecutor(ScriptExecutor(lambda prompt: list(b"abcdefgh"), GEOMETRY))

class Slow(GatedExecutor):
    def load(self, progress):
        progress("taking my time")
        loading_began.set()
        loading_may_end.wait(30)
        return self.inner.load(progress)

class Failing(GatedExecutor):
    def load(self, progress):
        raise LoadError("shard 2 of 3 is missing")

def make(options, site):
    return gated

def slow(options, site):
    return Slow(gated.inner)

def failing(options, site):
    return Failing(gated.inner)
"""


@attrs.define
class Served:
    """A server under test, and what it told its operator."""

    server: Server
    said: list[str]
    code: int | None = None
    ended: anyio.Event = attrs.field(factory=anyio.Event)

    @property
    def url(self) -> str:
        return self.server.addresses[0]

    async def ready(self) -> None:
        while not self.said:
            await anyio.lowlevel.checkpoint()

    async def running(self, requests: int) -> None:
        while self.server.gateway.running < requests:
            await anyio.lowlevel.checkpoint()


@pytest.fixture(autouse=True)
def scripted(install: Callable[..., None]) -> None:
    plugins = {"gated": "make", "slow": "slow", "failing": "failing"}
    install("scripted", "scripted_executor", EXECUTOR, "plancha.executors", **plugins)


def module() -> Any:
    return importlib.import_module("scripted_executor")


def deployment(executor: str, **server: float) -> Deployment:
    made, problems = understand(
        {
            "batch": {"max_sequences": 2},
            "server": server,
            "executor": {"plugin": executor},
            "transport": {"http": {"port": 0}},
        }
    )
    assert problems == ()
    return made


def open_model(name: str, report: Report) -> tuple[Path, Text]:
    return Path("tiny"), byte_text()


@asynccontextmanager
async def serving(deployment: Deployment, opening: Any = open_model) -> AsyncIterator[Served]:
    """A running server whose doors are open; ends with the block, at the latest."""
    said: list[str] = []
    server = Server(deployment=deployment, open_model=opening, say=said.append)
    served = Served(server, said)

    async def run() -> None:
        served.code = await server.run()
        served.ended.set()

    with anyio.fail_after(HANG_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            while not server.addresses and not served.ended.is_set():
                await anyio.lowlevel.checkpoint()
            yield served
            tasks.cancel_scope.cancel()


async def status(url: str) -> tuple[int, Any]:
    async with aiohttp.request("GET", url) as response:
        return response.status, await response.json()


async def stream(served: Served, prompt: str, max_tokens: int) -> tuple[int, str]:
    """Status and whole body of a streamed completion."""
    body = {"prompt": prompt, "max_tokens": max_tokens, "stream": True}
    async with aiohttp.request("POST", f"{served.url}/v1/completions", json=body) as response:
        return response.status, await response.text()


def tell_to_stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def text_of(body: str) -> str:
    events = [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: {")]
    return "".join(choice["text"] for event in events for choice in event.get("choices", ()))


async def test_a_request_is_answered_and_the_operator_told_where_to_ask() -> None:
    async with serving(deployment("gated")) as served:
        await served.ready()
        module().gated.open()

        code, body = await stream(served, "x", 3)

    assert (code, text_of(body)) == (200, "abc")
    assert body.endswith("data: [DONE]\n\n")
    where, how = served.said
    assert where == f"smollm2 is served at {served.url}"
    assert f"curl -N {served.url}/generate" in how


async def test_doors_are_open_and_not_ready_while_the_model_loads() -> None:
    async with serving(deployment("slow")) as served:
        code, told = await status(f"{served.url}/health/ready")
        assert (code, told["reason"]) == (503, "loading")
        assert (await status(f"{served.url}/health/live"))[0] == 200
        assert (await status(f"{served.url}/v1/models"))[1]["data"] == []
        assert (await stream(served, "x", 1))[0] == 503

        module().loading_may_end.set()
        await served.ready()
        assert (await status(f"{served.url}/health/ready"))[0] == 200


async def test_a_stop_while_loading_does_not_wait_for_the_model() -> None:
    async with serving(deployment("slow")) as served:
        while not module().loading_began.is_set():
            await anyio.lowlevel.checkpoint()
        tell_to_stop()
        await served.ended.wait()

        assert served.code == 0
        module().loading_may_end.set()


async def test_a_model_that_does_not_load_ends_the_process_with_its_reason() -> None:
    async with serving(deployment("failing")) as served:
        await served.ended.wait()

    assert served.code == 1
    assert served.said == ["plancha: shard 2 of 3 is missing"]


async def test_a_model_that_is_not_there_ends_the_process_with_its_reason() -> None:
    def absent(name: str, report: Report) -> tuple[Path, Text]:
        raise LoadError(f"model {name!r}: no such file or folder")

    async with serving(deployment("gated"), absent) as served:
        await served.ended.wait()

    assert served.code == 1
    assert served.said == ["plancha: model 'smollm2': no such file or folder"]


async def test_a_port_that_is_taken_ends_the_process_with_its_reason() -> None:
    async with serving(deployment("gated")) as first:
        port = int(first.url.rpartition(":")[2])
        async with serving(deployment("gated").listening_at(None, port)) as second:
            await second.ended.wait()

        assert second.code == 1
        (told,) = second.said
        assert str(port) in told


async def test_told_to_stop_it_finishes_what_runs_and_refuses_the_rest() -> None:
    async with serving(deployment("gated", drain_timeout_s=HANG_S)) as served:
        await served.ready()
        gated: GatedExecutor = module().gated
        answers: dict[str, tuple[int, str]] = {}

        async def keep(name: str) -> None:
            answers[name] = await stream(served, name, 4)

        async with anyio.create_task_group() as clients:
            clients.start_soon(keep, "one")
            await gated.started()
            clients.start_soon(keep, "two")
            await served.running(2)
            gated.commit()
            await gated.started()  # a step with both, which take all places in the batch
            clients.start_soon(keep, "queued")
            await served.running(3)

            tell_to_stop()
            while (await status(f"{served.url}/health/ready"))[1]["status"] != "draining":
                await anyio.lowlevel.checkpoint()
            answers["late"] = await stream(served, "late", 4)
            gated.open()
        await served.ended.wait()

    assert served.code == 0
    assert {name: code for name, (code, _) in answers.items()} == {
        "one": 200,
        "two": 200,
        "queued": 503,
        "late": 503,
    }
    assert text_of(answers["one"][1]) == text_of(answers["two"][1]) == "abcd"


async def test_streams_that_outlast_the_drain_get_an_error_event() -> None:
    async with serving(deployment("gated", drain_timeout_s=0)) as served:
        await served.ready()
        gated: GatedExecutor = module().gated
        answers: list[tuple[int, str]] = []

        async def keep() -> None:
            answers.append(await stream(served, "x", 8))

        async with anyio.create_task_group() as clients:
            clients.start_soon(keep)
            await gated.run(2)
            await gated.started()
            tell_to_stop()
        gated.open()
        await served.ended.wait()

    ((code, body),) = answers
    assert (served.code, code, text_of(body)) == (0, 200, "ab")
    assert '"error"' in body
    assert "[DONE]" not in body


async def test_told_twice_it_waits_for_nobody() -> None:
    async with serving(deployment("gated", drain_timeout_s=10 * HANG_S)) as served:
        await served.ready()
        gated: GatedExecutor = module().gated
        async with anyio.create_task_group() as clients:
            clients.start_soon(stream, served, "x", 8)
            await gated.run(1)
            await gated.started()
            tell_to_stop()
            while served.server.gateway.state != "draining":
                await anyio.lowlevel.checkpoint()
            tell_to_stop()
        gated.open()
        await served.ended.wait()

    assert served.code == 0
