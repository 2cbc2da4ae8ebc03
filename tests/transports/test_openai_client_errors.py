"""The official `openai` client when things go wrong: exceptions, retries, cancelling."""

from types import SimpleNamespace
from typing import Any

import anyio
import openai
import pytest

from plancha.access import Access, key_hash
from plancha.testing.embedded import Limits
from plancha.testing.gate import GatedExecutor

MESSAGES: Any = [{"role": "user", "content": "Hi?"}]
ONE = Limits(max_sequences=1, max_waiting=1)


def client_of(server: Any, **settings: Any) -> openai.AsyncOpenAI:
    given = {"api_key": "unused", "max_retries": 0, **settings}
    return openai.AsyncOpenAI(base_url=f"{server.url}/v1", **given)


async def test_a_stop_string_ends_the_text_before_itself(serve: Any, says: Any) -> None:
    async with serve(says("one, two, three")) as server, client_of(server) as client:
        answer = await client.completions.create(model="tiny", prompt="x", stop=[", t", "!"])
        assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("one", "stop")
        chat = await client.chat.completions.create(model="tiny", messages=MESSAGES, stop=" two")
        assert chat.choices[0].message.content == "one,"


async def test_echo_gives_the_prompt_back(serve: Any, says: Any) -> None:
    async with serve(says("Hello")) as server, client_of(server) as client:
        answer = await client.completions.create(model="tiny", prompt="Say: ", echo=True)
        assert answer.choices[0].text == "Say: Hello"


async def test_usage_comes_last_and_only_when_asked_for(serve: Any, says: Any) -> None:
    async with serve(says("Hello")) as server, client_of(server) as client:
        for asked in (True, False):
            stream = await client.completions.create(
                model="tiny", prompt="x", stream=True, stream_options={"include_usage": asked}
            )
            usages = [chunk.usage async for chunk in stream]
            assert usages[:-1] == [None] * (len(usages) - 1)
            assert (usages[-1] is not None) == asked


async def test_raw_responses_have_both_names_of_the_request(serve: Any, says: Any) -> None:
    async with serve(says("Hello")) as server, client_of(server) as client:
        raw = await client.completions.with_raw_response.create(
            model="tiny", prompt="x", extra_headers={"X-Request-Id": "mine"}
        )
        assert raw.headers["x-request-id"] == "mine"
        ours = raw.headers["plancha-request-id"]
        answer = raw.parse()
        assert (answer.id, answer._request_id) == (ours, "mine")
        status, record = await server.get(f"/v1/requests/{ours}")
        assert (status, record["request_id"], record["outcome"]) == (200, "mine", "completed")


async def test_a_wrong_key_is_an_authentication_error(serve: Any, says: Any) -> None:
    async with serve(says("Hello")) as server:
        server.gateway.access = Access(keys={key_hash(b"sk-right"): "a"}, anonymous=None)
        async with client_of(server, api_key="sk-wrong") as client:
            with pytest.raises(openai.AuthenticationError) as refused:
                await client.completions.create(model="tiny", prompt="x")
            assert refused.value.code == "invalid_api_key"
            assert "sk-wrong" not in str(refused.value)
        async with client_of(server, api_key="sk-right") as client:
            answer = await client.completions.create(model="tiny", prompt="x")
            assert answer.choices[0].text == "Hello"


@pytest.mark.parametrize(
    ("mistake", "param"),
    [
        ({"max_tokens": 10_000}, "max_tokens"),
        ({"extra_body": {"max_token": 5}}, "max_token"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"n": 2, "best_of": 3}, "best_of"),
    ],
)
async def test_a_mistake_is_a_bad_request_that_names_its_field(
    serve: Any, says: Any, mistake: Any, param: str
) -> None:
    async with serve(says("Hello")) as server, client_of(server) as client:
        with pytest.raises(openai.BadRequestError) as bad:
            await client.completions.create(**{"model": "tiny", "prompt": "x", **mistake})
    assert (bad.value.param, bad.value.type) == (param, "invalid_request_error")


async def test_a_model_that_is_not_here_is_not_found(serve: Any, says: Any) -> None:
    async with serve(says("Hello")) as server, client_of(server) as client:
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("other")
        with pytest.raises(openai.NotFoundError):
            await client.embeddings.create(model="tiny", input="x")


async def test_a_full_queue_is_a_rate_limit_error(serve: Any, emits: Any, until: Any) -> None:
    gated = GatedExecutor(emits(65))
    async with serve(gated, limits=ONE) as server, client_of(server) as client:
        async with anyio.create_task_group() as tasks:
            await fill(tasks, server, client, until)
            with pytest.raises(openai.RateLimitError) as full:
                await client.completions.create(model="tiny", prompt="x")
            assert int(full.value.response.headers["retry-after"]) >= 1
            gated.open()


async def test_the_client_retries_a_429_when_it_was_told_to(
    serve: Any, emits: Any, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gated = GatedExecutor(emits(65))
    told: list[str | None] = []
    slept: list[float] = []

    async def note(response: Any) -> None:
        told.append(response.headers.get("retry-after"))

    async def sleep_until_there_is_room(seconds: float) -> None:
        slept.append(seconds)
        gated.open()
        await server.quiet()

    http = openai.DefaultAsyncHttpxClient(event_hooks={"response": [note]})
    async with serve(gated, limits=ONE) as server, client_of(server) as filler:
        async with anyio.create_task_group() as tasks:
            await fill(tasks, server, filler, until)
            async with client_of(server, max_retries=2, http_client=http) as client:
                with monkeypatch.context() as patched:
                    asleep = SimpleNamespace(sleep=sleep_until_there_is_room)
                    patched.setattr("openai._base_client.anyio", asleep)
                    answer = await client.completions.create(model="tiny", prompt="x", max_tokens=2)
    assert answer.choices[0].text == "AA"
    assert len(told) == 2  # one refusal, one answer
    assert told[0] is not None and told[1] is None
    assert [float(told[0])] == slept


async def test_a_client_that_gives_up_waiting_frees_the_sequence(serve: Any, emits: Any) -> None:
    gated = GatedExecutor(emits(65))
    async with serve(gated) as server, client_of(server, timeout=0.2) as client:
        with pytest.raises(openai.APITimeoutError):
            await client.completions.create(model="tiny", prompt="x", max_tokens=200)
        gated.open()
        await server.quiet()


async def test_closing_a_stream_early_frees_the_sequence(serve: Any, emits: Any) -> None:
    gated = GatedExecutor(emits(65))
    async with serve(gated) as server, client_of(server) as client:
        stream = await begun(client, gated)
        assert (await anext(aiter(stream))).choices[0].text == "A"
        identity = stream.response.headers["plancha-request-id"]
        await stream.close()
        gated.open()
        await server.quiet()
        _, record = await server.get(f"/v1/requests/{identity}")
    assert record["outcome"] == "cancelled"


async def test_a_server_that_is_not_there_is_a_connection_error(serve: Any, says: Any) -> None:
    async with serve(says("Hello")) as server, client_of(server) as client:
        await server.stop()
        with pytest.raises(openai.APIConnectionError):
            await client.models.list()


async def fill(tasks: Any, server: Any, client: openai.AsyncOpenAI, until: Any) -> None:
    """One request in the batch, and another that waits for it."""

    async def ask() -> None:
        await client.completions.create(model="tiny", prompt=["x", "y"], max_tokens=2)

    tasks.start_soon(ask)
    await until(lambda: server.gateway.running == 1)
    await until(lambda: server.kernel.planner.load().running == 1)


async def begun(client: openai.AsyncOpenAI, gated: GatedExecutor) -> Any:
    """A stream whose first token has come."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(gated.run, 1)
        return await client.completions.create(
            model="tiny", prompt="x", max_tokens=200, stream=True
        )
