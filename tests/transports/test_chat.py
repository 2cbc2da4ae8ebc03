"""`POST /v1/chat/completions`."""

from typing import Any

import pytest

from plancha_text.byte_text import byte_text

ASKED = {"messages": [{"role": "user", "content": "Hi?"}]}
PATH = "/v1/chat/completions"


async def test_a_whole_answer_is_a_message_of_the_assistant(serve: Any, says: Any) -> None:
    async with serve(says("Hello")) as server:
        status, answer = await server.post(PATH, {"model_id": "tiny", **ASKED})
    assert status == 200
    assert answer["object"] == "chat.completion"
    (choice,) = answer["choices"]
    assert choice == {
        "index": 0,
        "message": {"role": "assistant", "content": "Hello", "refusal": None},
        "logprobs": None,
        "finish_reason": "stop",
    }
    # <|im_start|>user⏎Hi?<|im_end|>⏎<|im_start|>assistant⏎, a special token being one
    prompt_tokens = 1 + len("user\nHi?") + 1 + 1 + 1 + len("assistant\n")
    assert answer["usage"] == {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": 6,
        "total_tokens": prompt_tokens + 6,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


async def test_a_stream_opens_with_the_role_and_ends_with_an_empty_delta(
    serve: Any, says: Any
) -> None:
    async with serve(says("Hi")) as server:
        events = await server.events(PATH, {**ASKED, "stream": True})
    assert events[-1] == (None, "[DONE]")
    chunks = [data for _, data in events[:-1]]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert [
        (chunk["choices"][0]["delta"], chunk["choices"][0]["finish_reason"]) for chunk in chunks
    ] == [
        ({"role": "assistant", "content": ""}, None),
        ({"content": "H"}, None),
        ({"content": "i"}, None),
        ({}, "stop"),
    ]


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
async def test_either_name_limits_the_answer(serve: Any, emits: Any, field: str) -> None:
    async with serve(emits(65)) as server:
        _, answer = await server.post(PATH, {**ASKED, field: 5})
        status, error = await server.refusal(PATH, {**ASKED, field: 1000})
        zero, zero_error = await server.refusal(PATH, {**ASKED, field: 0})
    assert answer["choices"][0]["message"]["content"] == "A" * 5
    assert answer["choices"][0]["finish_reason"] == "length"
    assert (status, error["param"], error["code"]) == (400, field, "context_length_exceeded")
    assert (zero, zero_error["param"]) == (400, field)


async def test_two_different_limits_are_refused(serve: Any, emits: Any) -> None:
    async with serve(emits(65)) as server:
        body = {**ASKED, "max_tokens": 5, "max_completion_tokens": 6}
        assert (await server.refusal(PATH, body))[0] == 400
        status, _ = await server.post(PATH, {**body, "max_completion_tokens": 5})
        assert status == 200


async def test_without_a_limit_the_answer_may_fill_the_context(serve: Any, emits: Any) -> None:
    async with serve(emits(65)) as server:
        _, answer = await server.post(PATH, ASKED)
    assert answer["usage"]["total_tokens"] == 256
    assert answer["choices"][0]["finish_reason"] == "length"


async def test_text_parts_are_joined(serve: Any, says: Any) -> None:
    parts = [{"type": "text", "text": "H"}, {"type": "text", "text": "i?"}]
    async with serve(says("Hello")) as server:
        _, plain = await server.post(PATH, ASKED)
        _, joined = await server.post(PATH, {"messages": [{"role": "user", "content": parts}]})
    assert joined["usage"]["prompt_tokens"] == plain["usage"]["prompt_tokens"]


async def test_an_answer_can_be_sent_back_as_it_came(serve: Any, says: Any) -> None:
    async with serve(says("Hello")) as server:
        _, answer = await server.post(PATH, ASKED)
        reply = {**answer["choices"][0]["message"], "tool_calls": None, "annotations": []}
        history = [*ASKED["messages"], reply, {"role": "user", "content": "And?"}]
        status, _ = await server.post(PATH, {"messages": history})
    assert status == 200


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        (None, "messages"),
        (5, "messages"),
        ([], "messages"),
        ([5], "messages[0]"),
        ([{}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": None}], "messages[0].content"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": 5, "content": "x"}], "messages[0].role"),
        ([{"role": "", "content": "x"}], "messages[0].role"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content[0].type"),
        ([{"role": "user", "content": "x", "contents": "y"}], "messages[0].contents"),
        ([{"role": "user", "content": "x", "tool_calls": [{}]}], "messages[0].tool_calls"),
    ],
)
async def test_malformed_messages_are_named(
    serve: Any, says: Any, messages: Any, param: str
) -> None:
    async with serve(says("Hello")) as server:
        status, error = await server.refusal(PATH, {"messages": messages})
        assert (status, error["type"]) == (400, "invalid_request_error")
        assert error["param"] == param
        assert (await server.post(PATH, ASKED))[0] == 200


@pytest.mark.parametrize(
    "template",
    [None, "{{ raise_exception('roles must alternate') }}", "{{ messages.__class__.__mro__ }}"],
)
async def test_a_model_that_cannot_chat_says_so_and_still_completes(
    serve: Any, says: Any, template: str | None
) -> None:
    async with serve(says("Hello"), text=byte_text(chat_template=template)) as server:
        for stream in (False, True):
            status, error = await server.refusal(PATH, {**ASKED, "stream": stream})
            assert (status, error["param"]) == (400, "messages")
            assert "Traceback" not in error["message"] and "jinja" not in error["message"].lower()
        assert (await server.post("/v1/completions", {"prompt": "x"}))[0] == 200
