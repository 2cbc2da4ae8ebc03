"""`POST /generate`."""

from typing import Any

import pytest


async def test_every_token_has_its_event_and_done_comes_last(serve: Any, emits: Any) -> None:
    ids = [72, 105, 32, 240, 159, 153, 130, 257]
    async with serve(emits(*ids)) as server:
        events = await server.events("/generate", {"prompt": "abc"})
    *tokens, (name, done) = events
    assert [data["token"] for _, data in tokens] == ids
    assert [data["index"] for _, data in tokens] == list(range(len(ids)))
    assert [data["text"] for _, data in tokens] == ["H", "i", " ", "", "", "", "🙂", ""]
    assert {data["id"] for _, data in tokens} == {done["id"]}
    assert {name for name, _ in tokens} == {None}
    assert name == "done"
    assert done["finish_reason"] == "stop"
    assert done["usage"] == {"input_tokens": 3, "cached_tokens": 0, "output_tokens": len(ids)}


async def test_all_texts_joined_are_the_answer(serve: Any, emits: Any) -> None:
    body = {"prompt": "x", "max_tokens": 5}
    ids = [72, 105, 32, 240, 159]
    async with serve(emits(*ids)) as server:
        events = await server.events("/generate", body)
    assert "".join(data["text"] for _, data in events) == bytes(ids).decode("utf-8", "replace")
    assert events[-1][1]["finish_reason"] == "length"


async def test_there_are_as_many_events_as_tokens_however_fast_they_come(
    serve: Any, emits: Any
) -> None:
    async with serve(emits(65)) as server:
        events = await server.events("/generate", {"prompt": "x", "max_tokens": 50})
    assert [data["index"] for _, data in events[:-1]] == list(range(50))


async def test_ids_and_chats_are_prompts_too(serve: Any, says: Any) -> None:
    async with serve(says("Hi")) as server:
        by_ids = await server.events("/generate", {"prompt": [120, 120]})
        chat = await server.events("/generate", {"messages": [{"role": "user", "content": "x"}]})
    assert by_ids[-1][1]["usage"]["input_tokens"] == 2
    assert chat[-1][1]["finish_reason"] == "stop"


async def test_without_max_tokens_the_answer_may_fill_the_context(serve: Any, emits: Any) -> None:
    async with serve(emits(65)) as server:
        events = await server.events("/generate", {"prompt": "x" * 250})
    assert events[-1][1]["usage"] == {"input_tokens": 250, "cached_tokens": 0, "output_tokens": 6}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"prompt": None},
        {"prompt": ""},
        {"prompt": []},
        {"prompt": ["a", "b"]},
        {"prompt": "x", "messages": [{"role": "user", "content": "x"}]},
        {"prompt": "x", "max_tokens": 0},
        {"prompt": "x", "stream": False},
        {"prompt": "x", "echo": True},
    ],
)
async def test_what_is_no_single_prompt_is_refused_before_any_event(
    serve: Any, says: Any, body: Any
) -> None:
    async with serve(says("Hi")) as server:
        status, error = await server.refusal("/generate", body)
        assert status == 400
        assert error["message"]
