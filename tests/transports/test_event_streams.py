"""When a stream's headers go out, what keeps it alive, and how it breaks off."""

import gc
import logging
import weakref
from collections.abc import Callable
from typing import Any

import anyio
import attrs
import orjson
import pytest
import structlog

from plancha.contracts import Executor, Geometry
from plancha.plans import Plan, StepDone
from plancha.testing.gate import GatedExecutor

STREAMS = [
    ("/generate", {"prompt": "x"}),
    ("/v1/completions", {"prompt": "x", "stream": True, "max_tokens": 9}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "stream": True}),
]
WHOLE = [
    ("/v1/completions", {"prompt": "x"}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
]
SECRET = "secret path /srv/x"


@attrs.define(eq=False)
class Breaking:
    """Its whole step raises as soon as a sequence has `after` output tokens."""

    inner: Any
    after: int

    def load(self, progress: Callable[[str], None]) -> Geometry:
        geometry: Geometry = self.inner.load(progress)
        return geometry

    def step(self, plan: Plan) -> StepDone:
        done: StepDone = self.inner.step(plan)
        slots = self.inner._slots.by_slot.values()
        if any(len(slot.token_ids) - slot.join.prompt_tokens > self.after for slot in slots):
            raise RuntimeError(SECRET)
        return done

    def reset(self) -> None:
        self.inner.reset()

    def close(self) -> None:
        self.inner.close()


def tokens_in(events: list[Any]) -> str:
    text = ""
    for _, data in events:
        if data == "[DONE]" or "error" in data:
            continue
        if "choices" in data:
            choice = data["choices"][0]
            text += choice.get("text") or choice.get("delta", {}).get("content") or ""
        else:
            text += data["text"]
    return text


@pytest.mark.parametrize(("path", "body"), STREAMS)
async def test_no_proxy_is_invited_to_hold_events_back(
    serve: Any, says: Any, path: str, body: Any
) -> None:
    async with (
        serve(says("Hi")) as server,
        server.session.post(
            server.url + path, json=body, headers={"Accept-Encoding": "gzip"}
        ) as response,
    ):
        assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        assert response.headers["Cache-Control"] == "no-cache"
        assert response.headers["X-Accel-Buffering"] == "no"
        assert "Content-Encoding" not in response.headers
        assert "Content-Length" not in response.headers
        assert response.headers["Plancha-Request-Id"].startswith("req-")
        (await response.read()).decode("utf-8", "strict")


@pytest.mark.parametrize(("path", "body"), STREAMS)
async def test_each_token_arrives_before_the_next_is_computed(
    serve: Any, emits: Any, connect: Any, path: str, body: Any
) -> None:
    gated = GatedExecutor(emits(*b"ABCDEFGHI"))
    async with serve(gated) as server, connect(server) as client:
        await client.post(path, body)
        for letter in b"ABCDEFGHI":
            await gated.started()
            gated.commit()
            await client.receive_until(b'"%c"' % letter)
        gated.open()


@pytest.mark.parametrize(("path", "body"), STREAMS)
async def test_headers_wait_for_the_first_token_so_that_a_failure_is_a_plain_status(
    serve: Any, emits: Any, path: str, body: Any
) -> None:
    async with serve(Breaking(emits(65), after=0)) as server:
        status, error = await server.refusal(path, body)
        assert (status, error["type"], error["code"]) == (500, "server_error", "engine_error")
        assert SECRET not in error["message"]


@pytest.mark.parametrize(("path", "body"), STREAMS)
async def test_headers_go_out_after_a_while_without_any_token(
    serve: Any, emits: Any, connect: Any, path: str, body: Any
) -> None:
    gated = GatedExecutor(Breaking(emits(65), after=0))
    async with serve(gated, headers_after_s=0) as server, connect(server) as client:
        await client.post(path, body)
        await gated.started()
        head = await client.receive_until(b"\n\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert b"data:" not in head
        gated.open()  # and now the failure can only be an event
        rest = await client.receive_until(b"\r\n0\r\n\r\n")
        assert b'"engine_error"' in rest
        assert b"[DONE]" not in rest


@pytest.mark.parametrize(("path", "body"), STREAMS)
async def test_a_silent_stream_has_heartbeats(
    serve: Any, emits: Any, connect: Any, path: str, body: Any
) -> None:
    gated = GatedExecutor(emits(65, 66, 257))
    async with serve(gated, heartbeat_s=0.01) as server, connect(server) as client:
        await client.post(path, body)
        await gated.run(1)
        await client.receive_until(b'"A"')
        before = client.received.count(b"\n:\n\n")
        await gated.started()
        while client.received.count(b"\n:\n\n") < before + 3:
            client.received += await client.stream.receive()
        gated.open()
        assert b'"B"' in await client.receive_until(b"\r\n0\r\n\r\n")


@pytest.mark.parametrize(("path", "body"), STREAMS)
@pytest.mark.parametrize("whole_step", [False, True])
async def test_a_failure_after_three_tokens_is_one_error_event_and_a_proper_end(
    serve: Any, emits: Any, path: str, body: Any, whole_step: bool
) -> None:
    executor: Executor = emits(*b"ABCDEFGHI", failing=frozenset({(0, 3)}))
    if whole_step:
        executor = Breaking(emits(*b"ABCDEFGHI"), after=3)
    async with serve(executor) as server:
        events = await server.events(path, body)
        name, last = events[-1]
        assert name == ("error" if path == "/generate" else None)
        assert last["error"] == {
            "message": last["error"]["message"],
            "type": "server_error",
            "param": None,
            "code": "engine_error",
        }
        assert tokens_in(events) == "ABC"
        assert SECRET not in orjson.dumps(events).decode()
        assert "RuntimeError" not in orjson.dumps(events).decode()
        short = {"prompt": "x", "max_tokens": 2}
        assert (await server.post("/v1/completions", short))[0] == 200
        await server.quiet()


@pytest.mark.parametrize(("path", "body"), WHOLE)
@pytest.mark.parametrize("after", [0, 3])
async def test_a_failure_of_a_whole_answer_is_a_status(
    serve: Any, emits: Any, path: str, body: Any, after: int
) -> None:
    async with serve(Breaking(emits(65), after=after)) as server:
        status, error = await server.refusal(path, body)
        assert (status, error["code"]) == (500, "engine_error")
        await server.quiet()


async def test_one_failing_sequence_leaves_the_others_going(serve: Any, emits: Any) -> None:
    executor = emits(*b"ABCDEFGHI", failing=frozenset({(0, 3)}))
    gated = GatedExecutor(executor)
    answers: dict[str, Any] = {}
    async with serve(gated) as server:

        async def ask(name: str) -> None:
            answers[name] = await server.post("/v1/completions", {"prompt": "x", "max_tokens": 9})

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, "first")
            await gated.started()
            tasks.start_soon(ask, "second")
            gated.open()
    assert answers["first"][0] == 500
    assert answers["second"][1]["choices"][0]["text"] == "ABCDEFGHI"


@pytest.mark.parametrize(("path", "body"), STREAMS)
async def test_a_request_cancelled_by_another_call_ends_with_an_error(
    serve: Any, emits: Any, connect: Any, path: str, body: Any
) -> None:
    gated = GatedExecutor(emits(65))
    async with serve(gated) as server, connect(server) as client:
        await client.post(path, body)
        await gated.run(1)
        await client.receive_until(b'"A"')
        (request_id,) = server.gateway._records
        status, _ = await server.post(f"/v1/requests/{request_id}/cancel")
        assert status == 200
        rest = await client.receive_until(b"\r\n0\r\n\r\n")
        assert b'"request_cancelled"' in rest
        assert b"[DONE]" not in rest
        gated.open()
        await server.quiet()


async def test_no_content_and_no_trace_is_logged(
    serve: Any, emits: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "a word that is nobodys business"
    with structlog.testing.capture_logs() as lines:
        async with serve(emits(*b"quite private", 257)) as server:
            await server.events("/generate", {"prompt": secret})
            await server.refusal("/generate", {"prompt": secret, "temperature": secret})
            await server.refusal("/v1/completions", {"prompt": {secret: secret}})
    assert [line["status"] for line in lines if line["event"] == "http_request"] == [200, 400, 400]
    everything = f"{lines}{caplog.text}"
    assert secret not in everything
    assert "quite private" not in everything


@pytest.mark.parametrize(("path", "body"), STREAMS)
async def test_nothing_is_kept_of_a_stream_that_has_ended(
    serve: Any, emits: Any, connect: Any, path: str, body: Any
) -> None:
    gated = GatedExecutor(emits(65, 66, 257))
    async with serve(gated) as server, connect(server) as client:
        await client.post(path, body)
        await gated.started()
        (generation,) = server.gateway.outboxes.running.values()
        kept = weakref.ref(generation)
        del generation
        gated.open()
        await client.receive_until(b"\r\n0\r\n\r\n")
        await server.quiet()
        await server.get("/health/live")
        gc.collect()
        assert kept() is None
