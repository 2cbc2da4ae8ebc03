"""`POST /v1/completions`."""

from typing import Any

import pytest

from plancha_text.byte_text import byte_text


def usage(prompt: int, output: int, cached: int = 0) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def text_of(events: list[Any], index: int = 0) -> str:
    choices = [choice for _, data in events if data != "[DONE]" for choice in data["choices"]]
    return "".join(choice["text"] for choice in choices if choice["index"] == index)


async def test_a_whole_answer_has_openais_shape(serve: Any, says: Any) -> None:
    async with serve(says("Hello")) as server:
        status, answer = await server.post("/v1/completions", {"model": "tiny", "prompt": "Say:"})
    assert status == 200
    request_id = answer.pop("id")
    assert request_id.startswith("req-")
    assert answer.pop("request_id") == request_id
    assert isinstance(answer.pop("created"), int)
    assert answer == {
        "object": "text_completion",
        "model": "tiny",
        "choices": [{"index": 0, "text": "Hello", "logprobs": None, "finish_reason": "stop"}],
        "usage": usage(4, 6),
    }


async def test_a_stream_has_openais_chunks_and_ends_with_done(serve: Any, says: Any) -> None:
    body = {"model": "tiny", "prompt": "Say:", "stream": True}
    async with serve(says("Hi")) as server:
        events = await server.events("/v1/completions", body)
    assert events[-1] == (None, "[DONE]")
    chunks = [data for _, data in events[:-1]]
    assert {(chunk["object"], chunk["model"]) for chunk in chunks} == {("text_completion", "tiny")}
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert all("usage" not in chunk for chunk in chunks)
    assert [chunk["choices"] for chunk in chunks] == [
        [{"index": 0, "text": "H", "logprobs": None, "finish_reason": None}],
        [{"index": 0, "text": "i", "logprobs": None, "finish_reason": None}],
        [{"index": 0, "text": "", "logprobs": None, "finish_reason": "stop"}],
    ]


async def test_without_max_tokens_there_are_sixteen(serve: Any, emits: Any) -> None:
    async with serve(emits(65)) as server:
        _, answer = await server.post("/v1/completions", {"prompt": "x"})
    assert answer["choices"][0]["text"] == "A" * 16
    assert answer["choices"][0]["finish_reason"] == "length"


async def test_where_sixteen_do_not_fit_the_default_is_what_does(serve: Any, emits: Any) -> None:
    async with serve(emits(65)) as server:
        for body in ({}, {"max_tokens": None}):
            _, answer = await server.post("/v1/completions", {"prompt": "x" * 250, **body})
            assert answer["usage"]["completion_tokens"] == 256 - 250
            assert answer["choices"][0]["finish_reason"] == "length"
        await server.quiet()


@pytest.mark.parametrize("max_tokens", [249, 90_000_000])
async def test_a_max_tokens_that_cannot_fit_is_refused_with_the_numbers(
    serve: Any, emits: Any, max_tokens: int
) -> None:
    body = {"prompt": "x" * 8, "max_tokens": max_tokens}
    async with serve(emits(65)) as server:
        for stream in (False, True):
            status, error = await server.refusal("/v1/completions", {**body, "stream": stream})
            assert (status, error["code"]) == (400, "context_length_exceeded")
            assert error["param"] == "max_tokens"
            for number in ("8", str(max_tokens), "256"):
                assert number in error["message"]
        status, _ = await server.post("/v1/completions", {"prompt": "x" * 8, "max_tokens": 248})
        assert status == 200


async def test_a_prompt_longer_than_the_context_is_refused_and_not_cut(
    serve: Any, emits: Any
) -> None:
    async with serve(emits(65)) as server:
        status, error = await server.refusal("/v1/completions", {"prompt": "x" * 300})
        assert (status, error["code"]) == (400, "context_length_exceeded")
        assert "300" in error["message"] and "256" in error["message"]
        await server.quiet()


async def test_zero_tokens_are_allowed_only_with_an_echo(serve: Any, emits: Any) -> None:
    async with serve(emits(65)) as server:
        body = {"prompt": "abc", "max_tokens": 0}
        status, error = await server.refusal("/v1/completions", body)
        assert (status, error["param"]) == (400, "max_tokens")
        status, answer = await server.post("/v1/completions", {**body, "echo": True})
        events = await server.events("/v1/completions", {**body, "echo": True, "stream": True})
        await server.quiet()
    assert status == 200
    assert answer["choices"][0]["text"] == text_of(events) == "abc"
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"] == usage(3, 0)


@pytest.mark.parametrize("prompt", ["Say:", [83, 97, 121, 58]])
async def test_an_echo_is_the_prompt_before_the_answer(
    serve: Any, says: Any, prompt: str | list[int]
) -> None:
    body = {"prompt": prompt, "echo": True}
    async with serve(says("Hi")) as server:
        _, answer = await server.post("/v1/completions", body)
        events = await server.events("/v1/completions", {**body, "stream": True})
    assert answer["choices"][0]["text"] == text_of(events) == "Say:Hi"
    assert answer["usage"]["completion_tokens"] == 3


@pytest.mark.parametrize(
    "prompts", [["one", "two"], [[111, 110, 101], [116, 119, 111]]], ids=["texts", "ids"]
)
async def test_every_prompt_of_a_list_has_its_own_choice(
    serve: Any, emits: Any, prompts: list[Any]
) -> None:
    executor = emits()
    executor.script = lambda prompt: (prompt[0], prompt[0], 257)  # the prompt's letter, twice
    async with serve(executor) as server:
        _, answer = await server.post("/v1/completions", {"prompt": prompts})
        events = await server.events("/v1/completions", {"prompt": prompts, "stream": True})
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    assert [choice["text"] for choice in answer["choices"]] == ["oo", "tt"]
    assert answer["usage"] == usage(6, 6)
    assert (text_of(events, 0), text_of(events, 1)) == ("oo", "tt")
    ends = [
        choice["index"]
        for _, data in events[:-1]
        for choice in data["choices"]
        if choice["finish_reason"]
    ]
    assert sorted(ends) == [0, 1]


async def test_one_list_of_ids_is_one_prompt(serve: Any, says: Any) -> None:
    async with serve(says("Hi")) as server:
        _, answer = await server.post("/v1/completions", {"prompt": [120, 120, 120]})
    assert len(answer["choices"]) == 1
    assert answer["usage"]["prompt_tokens"] == 3


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}])
async def test_usage_is_not_streamed_unless_asked_for(serve: Any, says: Any, options: Any) -> None:
    body = {"prompt": "x", "stream": True, "stream_options": options}
    async with serve(says("Hi")) as server:
        events = await server.events("/v1/completions", body)
    assert all("usage" not in data for _, data in events[:-1])


async def test_asked_for_usage_comes_once_after_the_last_choice(serve: Any, says: Any) -> None:
    body = {"prompt": "abc", "stream": True, "stream_options": {"include_usage": True}}
    async with serve(says("Hi")) as server:
        events = await server.events("/v1/completions", body)
        _, whole = await server.post("/v1/completions", {"prompt": "abc"})
        _, stored = await server.get(f"/v1/requests/{events[0][1]['id']}/usage")
    *chunks, last, done = (data for _, data in events)
    assert done == "[DONE]"
    assert last["choices"] == []
    assert last["usage"] == whole["usage"]
    assert last["usage"] == usage(3, 3)
    assert (stored["input_tokens"], stored["output_tokens"]) == (3, 3)
    assert all(chunk["usage"] is None for chunk in chunks)
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("options", [{}, {"include_usage": True}])
async def test_stream_options_without_a_stream_are_refused(
    serve: Any, says: Any, options: Any
) -> None:
    body = {"prompt": "x", "stream": False, "stream_options": options}
    async with serve(says("Hi")) as server:
        status, error = await server.refusal("/v1/completions", body)
    assert (status, error["param"]) == (400, "stream_options")


async def test_a_stop_string_ends_the_text_before_it(serve: Any, emits: Any) -> None:
    body = {"prompt": "x", "stop": ["NOPQRST"], "max_tokens": 40}
    async with serve(emits(*b"KLMNOPQRSTUVW")) as server:
        _, answer = await server.post("/v1/completions", body)
        events = await server.events("/v1/completions", {**body, "stream": True})
        await server.quiet()
    assert answer["choices"][0]["text"] == text_of(events) == "KLM"
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == 10


async def test_what_a_stop_string_held_back_comes_before_the_end(serve: Any, says: Any) -> None:
    body = {"prompt": "x", "stop": "NOPQRST", "stream": True}
    async with serve(says("KLMNOPQRS")) as server:
        events = await server.events("/v1/completions", body)
    texts = [data["choices"][0]["text"] for _, data in events[:-1]]
    reasons = [data["choices"][0]["finish_reason"] for _, data in events[:-1]]
    assert "".join(texts) == "KLMNOPQRS"
    assert texts[-1] == "" and texts[-2] != ""
    assert reasons[-1] == "stop" and set(reasons[:-1]) == {None}
    assert "" not in texts[:-1]


async def test_a_character_cut_by_max_tokens_is_replaced_as_python_would(
    serve: Any, emits: Any
) -> None:
    ids = (72, 105, 32, 240, 159, 153, 130)
    body = {"prompt": "x", "max_tokens": 5}
    expected = bytes(ids[:5]).decode("utf-8", "replace")
    async with serve(emits(*ids)) as server:
        _, answer = await server.post("/v1/completions", body)
        events = await server.events("/v1/completions", {**body, "stream": True})
    assert answer["choices"][0]["text"] == text_of(events) == expected
    assert answer["choices"][0]["finish_reason"] == "length"


async def test_vllms_extensions_are_understood(serve: Any, emits: Any) -> None:
    body = {"prompt": "x", "ignore_eos": True, "max_tokens": 5, "top_k": 3, "min_p": 0.1, "seed": 7}
    async with serve(emits(257)) as server:
        _, answer = await server.post("/v1/completions", {**body, "repetition_penalty": 1.1})
        assert answer["usage"]["completion_tokens"] == 5
    async with serve(emits(65, 66, 67)) as server:
        _, answer = await server.post("/v1/completions", {"prompt": "x", "stop_token_ids": [67]})
    assert answer["choices"][0]["text"] == "AB"
    assert answer["choices"][0]["finish_reason"] == "stop"


async def test_special_tokens_are_shown_when_asked_for(serve: Any, emits: Any) -> None:
    body = {"prompt": "x", "max_tokens": 3, "skip_special_tokens": False}
    async with serve(emits(111, 107, 259)) as server:
        _, shown = await server.post("/v1/completions", body)
        _, hidden = await server.post("/v1/completions", {**body, "skip_special_tokens": True})
    assert shown["choices"][0]["text"] == "ok<|im_end|>"
    assert hidden["choices"][0]["text"] == "ok"


async def test_an_empty_prompt_is_served_where_the_tokenizer_adds_a_bos(
    serve: Any, says: Any
) -> None:
    async with serve(says("Hi"), text=byte_text(adds_bos=True)) as server:
        for prompt in ("", [""]):
            status, answer = await server.post("/v1/completions", {"prompt": prompt})
            assert (status, answer["usage"]["prompt_tokens"]) == (200, 1)
        refused: list[tuple[list[list[int]], str]] = [([], "prompt"), ([[]], "prompt[0]")]
        for nothing, param in refused:
            status, error = await server.refusal("/v1/completions", {"prompt": nothing})
            assert (status, error["param"]) == (400, param)
