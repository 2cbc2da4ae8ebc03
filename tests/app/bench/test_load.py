import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest
from aiohttp import web

from plancha_app.bench.client import Outcome
from plancha_app.bench.command import run
from plancha_app.bench.job import Job
from plancha_app.bench.load import drive
from plancha_app.bench.workload import workload
from plancha_app.remote.server_error import ServerError

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """An OpenAI-compatible server of a few lines: "ab" over and over, one letter an event."""

    def __init__(self, *, usage: bool = True, long_line: int = 0) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.running = self.most_running = 0
        self._usage = usage
        self._long_line = long_line

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "tiny"}]})

    async def completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for index in range(body["max_tokens"]):
            await self._send(response, {"choices": [{"text": "ab"[index % 2]}], "usage": None})
        last = {"text": "", "finish_reason": "length", "padding": "x" * self._long_line}
        await self._send(response, {"choices": [last], "usage": None})
        if self._usage:
            used = {"prompt_tokens": len(body["prompt"]), "completion_tokens": body["max_tokens"]}
            await self._send(response, {"choices": [], "usage": used})
        await response.write(b"data: [DONE]\n\n")
        self.running -= 1
        return response

    async def _send(self, response: web.StreamResponse, event: object) -> None:
        await response.write(b": a comment\ndata: " + json.dumps(event).encode() + b"\n\n")
        await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def serving(completions: Handler, models: Handler | None = None) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/v1/completions", completions)
    if models is not None:
        app.router.add_get("/v1/models", models)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def drive_against(handler: Handler, job: Job) -> list[Outcome]:
    async with serving(handler) as url:
        return await drive(url, job, workload(job), lambda outcome: None)


async def test_a_closed_loop_has_so_many_under_way_and_never_more() -> None:
    server = Server()
    job = Job(requests=20, concurrency=4, prompt_tokens="5", output_tokens="3,6")
    seen: list[int] = []
    async with serving(server.completions, server.models) as url:
        outcomes = await drive(url, job, workload(job), lambda ended: seen.append(ended.ask.number))

    assert server.most_running == 4
    assert sorted(seen) == list(range(20))
    assert [outcome.error for outcome in outcomes] == [None] * 20
    assert [outcome.output_tokens for outcome in outcomes] == [3, 6] * 10
    assert [len(outcome.events) for outcome in outcomes] == [3, 6] * 10
    assert {outcome.prompt_tokens for outcome in outcomes} == {5}


async def test_the_server_is_asked_for_exact_greedy_lengths_with_usage() -> None:
    server = Server()

    await drive_against(server.completions, Job(model="m", requests=1, output_tokens="2"))

    (body,) = server.bodies
    assert body.pop("prompt")[0] >= 300
    assert body == {
        "model": "m",
        "max_tokens": 2,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
    }


async def test_an_open_loop_waits_for_nobody() -> None:
    server = Server()
    everyone_is_here = anyio.Event()

    async def after_the_others(request: web.Request) -> web.StreamResponse:
        server.running += 1
        if server.running == 5:
            everyone_is_here.set()
        await everyone_is_here.wait()
        return await server.completions(request)

    job = Job(model="m", requests=5, concurrency=1, rate=1000.0, output_tokens="1")
    outcomes = await drive_against(after_the_others, job)

    assert [outcome.error for outcome in outcomes] == [None] * 5


async def test_without_usage_the_events_are_counted() -> None:
    server = Server(usage=False)

    (outcome,) = await drive_against(
        server.completions, Job(model="m", requests=1, prompt_tokens="9", output_tokens="4")
    )

    assert (outcome.prompt_tokens, outcome.output_tokens) == (9, 4)


async def test_a_line_of_any_length_is_read() -> None:
    server = Server(long_line=3_000_000)

    (outcome,) = await drive_against(server.completions, Job(model="m", requests=1))

    assert (outcome.error, outcome.output_tokens) == (None, 16)


async def test_every_kind_of_failure_is_an_outcome() -> None:
    async def refused(request: web.Request) -> web.Response:
        return web.json_response({"error": {"message": "full"}}, status=429)

    async def broken_off(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'data: {"choices": [{"text": "a"}]}\n\n')
        return response

    async def told(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'data: {"error": {"message": "no"}}\n\n')
        return response

    async def nonsense(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"data: nonsense\n\n")
        return response

    async def silent(request: web.Request) -> web.StreamResponse:
        await anyio.sleep_forever()
        raise AssertionError

    for handler, error in (
        (refused, "HTTP 429"),
        (broken_off, "cut off"),
        (told, "error event"),
        (nonsense, "not an OpenAI stream"),
        (silent, "timeout"),
    ):
        (outcome,) = await drive_against(handler, Job(model="m", requests=1, timeout_s=0.1))
        assert outcome.error is not None
        assert error in outcome.error


async def test_a_server_that_is_not_there_or_lists_nothing_is_told() -> None:
    async def empty(request: web.Request) -> web.Response:
        return web.json_response({"data": []})

    with pytest.raises(ServerError, match="does not answer"):
        await drive("http://127.0.0.1:1", Job(), workload(Job()), lambda outcome: None)
    async with serving(Server().completions, empty) as url:
        with pytest.raises(ServerError, match="lists no model"):
            await drive(url, Job(), workload(Job()), lambda outcome: None)


async def test_the_command_prints_an_object_and_writes_one_per_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server, out = Server(), tmp_path / "requests.jsonl"
    job = Job(requests=3, concurrency=2, output_tokens="2", out=out, json=True)
    async with serving(server.completions, server.models) as url:
        code = await anyio.to_thread.run_sync(run, f"{url}/", job)

    summary = json.loads(capsys.readouterr().out)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert code == 0
    assert (summary["requests"], summary["failed"], summary["output_tokens"]) == (3, 0, 6)
    assert [row["number"] for row in rows] == [0, 1, 2]
    assert {row["output_tokens"] for row in rows} == {2}


async def test_a_key_from_a_file_goes_with_every_request(tmp_path: Path) -> None:
    server, seen = Server(), []

    async def completions(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers["Authorization"])
        return await server.completions(request)

    async def models(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != "Bearer pk-abc":
            return web.Response(status=401)
        return await server.models(request)

    key_file = tmp_path / "key"
    key_file.write_text("pk-abc\n")
    job = Job(requests=2, concurrency=1, prompt_tokens="4", output_tokens="2", key_file=key_file)
    async with serving(completions, models) as url:
        outcomes = await drive(url, job, workload(job), lambda outcome: None)
        with pytest.raises(ServerError, match="--key-file"):
            await drive(url, attrs.evolve(job, key_file=None), workload(job), lambda outcome: None)
    assert [outcome.error for outcome in outcomes] == [None, None]
    assert seen == ["Bearer pk-abc"] * 2


async def test_an_event_that_is_no_object_fails_its_request_alone() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(text="data: []\n\n", content_type="text/event-stream")

    (outcome,) = await drive_against(answer, Job(model="m", requests=1))

    assert outcome.error == "not an OpenAI stream"


def test_a_run_that_comes_to_nothing_leaves_the_last_result_where_it_is(tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    out.write_text("the last result\n")

    with pytest.raises(ServerError):
        run("http://127.0.0.1:1", Job(out=out))

    assert out.read_text() == "the last result\n"
