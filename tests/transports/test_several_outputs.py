"""`n`: several outputs of one prompt."""

from typing import Any

import attrs
import pytest

from plancha.contracts import Geometry
from plancha.testing.embedded import Limits
from plancha.testing.executors import ScriptExecutor
from plancha.testing.slots import Slot

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
PATHS = [COMPLETIONS, CHAT]
CHAT_ASKED = {"messages": [{"role": "user", "content": "Hi?"}]}


@attrs.define(eq=False)
class Drawing(ScriptExecutor):
    """Output token i follows from (seed, i) alone, as a sampler's does."""

    def _next(self, slot: Slot) -> int:
        drawn = len(slot.token_ids) - slot.join.prompt_tokens
        return 33 + (slot.join.seed // (drawn + 1)) % 90


@pytest.fixture
def draws() -> Drawing:
    geometry = Geometry(blocks=64, context_length=256, vocabulary=264, stop_ids=(257,))
    return Drawing(lambda prompt: (), geometry)


def body_of(path: str, **fields: Any) -> dict[str, Any]:
    return {**({"prompt": "abc"} if path == COMPLETIONS else CHAT_ASKED), **fields}


def text_of(choice: dict[str, Any]) -> str:
    return str(choice["text"] if "text" in choice else choice["message"]["content"])


def streamed(events: list[Any]) -> tuple[dict[int, str], list[int]]:
    """Texts by index, and the index of every finish reason."""
    texts: dict[int, str] = {}
    ends = []
    for _, data in events[:-1]:
        for choice in data["choices"]:
            text = choice["text"] if "text" in choice else choice["delta"].get("content", "")
            texts[choice["index"]] = texts.get(choice["index"], "") + text
            ends += [choice["index"]] if choice["finish_reason"] is not None else []
    return texts, ends


@pytest.mark.parametrize("path", PATHS)
async def test_outputs_differ_and_repeat_and_the_first_is_that_of_one(
    serve: Any, draws: Drawing, path: str
) -> None:
    body = body_of(path, n=3, seed=7, temperature=1.0, max_tokens=20)
    async with serve(draws) as server:
        _, first = await server.post(path, body)
        _, again = await server.post(path, body)
        _, alone = await server.post(path, {**body, "n": 1})
        options = {"stream": True, "stream_options": {"include_usage": True}}
        events = await server.events(path, {**body, **options})
        _, stored = await server.get(f"/v1/requests/{first['id']}/usage")
        await server.quiet()
    assert [choice["index"] for choice in first["choices"]] == [0, 1, 2]
    texts = [text_of(choice) for choice in first["choices"]]
    assert len(set(texts)) == 3
    assert texts == [text_of(choice) for choice in again["choices"]]
    assert texts[0] == text_of(alone["choices"][0])
    by_index, ends = streamed(events)
    assert by_index == dict(enumerate(texts))
    assert sorted(ends) == [0, 1, 2]
    assert first["usage"]["prompt_tokens"] == alone["usage"]["prompt_tokens"]
    assert first["usage"]["completion_tokens"] == 3 * 20
    assert (stored["input_tokens"], stored["output_tokens"]) == (
        alone["usage"]["prompt_tokens"],
        60,
    )
    last = events[-2][1]
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 60
    assert last["usage"]["prompt_tokens"] == alone["usage"]["prompt_tokens"]


async def test_prompts_come_one_after_the_other_each_with_its_outputs(
    serve: Any, emits: Any
) -> None:
    executor = emits()
    executor.script = lambda prompt: (prompt[0], prompt[0], 257)  # the prompt's letter, twice
    body = {"prompt": ["one", "two"], "n": 2, "echo": True}
    async with serve(executor) as server:
        _, answer = await server.post(COMPLETIONS, body)
        events = await server.events(COMPLETIONS, {**body, "stream": True})
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    texts = [choice["text"] for choice in answer["choices"]]
    assert texts == ["oneoo", "oneoo", "twott", "twott"]
    assert streamed(events)[0] == dict(enumerate(texts))
    assert answer["usage"]["prompt_tokens"] == 6
    assert answer["usage"]["completion_tokens"] == 4 * 3


async def test_every_output_has_its_own_end(serve: Any, draws: Drawing) -> None:
    body = {"prompt": "abc", "n": 3, "seed": 7, "max_tokens": 20}
    async with serve(draws) as server:
        _, whole = await server.post(COMPLETIONS, body)
        stop = whole["choices"][1]["text"][5:8]
        _, cut = await server.post(COMPLETIONS, {**body, "stop": stop})
        events = await server.events(COMPLETIONS, {**body, "stop": stop, "stream": True})
        await server.quiet()
    for before, after in zip(whole["choices"], cut["choices"], strict=True):
        text, found, _ = before["text"].partition(stop)
        assert after["text"] == text
        assert after["finish_reason"] == ("stop" if found else "length")
    assert cut["choices"][1]["finish_reason"] == "stop"
    texts, ends = streamed(events)
    assert texts == {choice["index"]: choice["text"] for choice in cut["choices"]}
    assert sorted(ends) == [0, 1, 2]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("n", [0, -1, 1.5, True, "2", 129, 100_000])
async def test_an_n_out_of_range_is_refused_before_anything_else(
    serve: Any, emits: Any, path: str, n: Any
) -> None:
    async with serve(emits(65)) as server:
        for stream in (False, True):
            status, error = await server.refusal(path, body_of(path, n=n, stream=stream))
            assert (status, error["param"]) == (400, "n")
            assert "128" in error["message"]
        assert not server.gateway._records


async def test_prompts_times_n_are_limited_together(serve: Any, emits: Any) -> None:
    limits = Limits(max_waiting=10)
    async with serve(emits(257), limits=limits, max_prompts=4, max_n=6) as server:
        for prompts, n, status in [(1, 6, 200), (4, 1, 200), (3, 2, 200), (2, 4, 400)]:
            body = {"prompt": ["x"] * prompts, "n": n}
            assert (await server.post(COMPLETIONS, body))[0] == status
        _, error = await server.refusal(COMPLETIONS, body)
        assert error["param"] == "n"
        _, error = await server.refusal(COMPLETIONS, {"prompt": ["x"] * 5})
        assert error["param"] == "prompt"


async def test_a_hundred_thousand_prompts_are_refused(serve: Any, emits: Any) -> None:
    async with serve(emits(65)) as server:
        body: Any
        for body in ({"prompt": [[65]] * 100_000}, {"prompt": ["A"] * 100_000}):
            status, error = await server.refusal(COMPLETIONS, body)
            assert (status, error["param"]) == (400, "prompt")


async def test_outputs_count_against_the_queue(serve: Any, emits: Any) -> None:
    async with serve(emits(65), limits=Limits(max_sequences=1, max_waiting=6)) as server:
        body = {"prompt": ["x", "y"], "n": 4, "max_tokens": 2}
        for stream in (False, True):
            status, error = await server.refusal(COMPLETIONS, {**body, "stream": stream})
            assert (status, error["code"]) == (400, "too_many_sequences")
        assert (await server.post(COMPLETIONS, {**body, "n": 3}))[0] == 200


@pytest.mark.parametrize("path", PATHS)
async def test_best_of_may_only_say_what_n_says(serve: Any, emits: Any, path: str) -> None:
    async with serve(emits(65)) as server:
        for n, best_of, status in [
            (None, 1, 200),
            (2, 2, 200),
            (2, None, 200),
            (2, 3, 400),
            (2, 1, 400),
            (None, 2, 400),
            (1, "1", 400),
        ]:
            body = body_of(path, n=n, best_of=best_of, max_tokens=1)
            found, answer = await server.post(path, body)
            assert found == status
            assert status == 200 or answer["error"]["param"] == "best_of"


async def test_our_own_doors_have_one_output(serve: Any, emits: Any) -> None:
    async with serve(emits(65)) as server:
        status, error = await server.refusal("/generate", {"prompt": "x", "n": 2})
        assert (status, error["param"]) == (400, "n")
        events = await server.events("/generate", {"prompt": "x", "n": 1, "max_tokens": 1})
        assert events[-1][0] == "done"
        async with server.session.ws_connect(server.url + "/v1/stream") as socket:
            await socket.send_json({"type": "generate", "id": "a", "prompt": "x", "n": 2})
            assert (await socket.receive_json())["error"]["param"] == "n"


async def test_a_client_that_leaves_cancels_every_output(
    serve: Any, emits: Any, connect: Any, until: Any
) -> None:
    async with serve(emits(65)) as server:
        async with connect(server) as client:
            body = {"prompt": "x", "n": 4, "max_tokens": 250, "stream": True}
            await client.post(COMPLETIONS, body)
            await client.receive_until(b"data: ")
            await client.reset()
        await until(lambda: server.gateway.running == 0)
        await server.quiet()
