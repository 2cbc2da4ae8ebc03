"""The official `openai` client, unchanged, against our server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest

MESSAGES: Any = [{"role": "user", "content": "Hi?"}]


@asynccontextmanager
async def client_of(server: Any) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=f"{server.url}/v1", api_key="unused", max_retries=0
    ) as client:
        yield client


async def test_completions_whole_and_streamed(serve: Any, says: Any) -> None:
    async with serve(says("Hello")) as server, client_of(server) as client:
        answer = await client.completions.create(model="tiny", prompt="Say:", temperature=0)
        assert answer.choices[0].text == "Hello"
        assert answer.usage is not None and answer.usage.completion_tokens == 6
        stream = await client.completions.create(model="tiny", prompt="Say:", stream=True)
        chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].text for chunk in chunks) == "Hello"
    assert chunks[-1].choices[0].finish_reason == "stop"


async def test_chat_whole_and_streamed(serve: Any, says: Any) -> None:
    async with serve(says("Hello")) as server, client_of(server) as client:
        answer = await client.chat.completions.create(
            model="tiny", messages=MESSAGES, max_completion_tokens=20, stop=["\n"], seed=1
        )
        assert answer.choices[0].message.content == "Hello"
        assert answer.choices[0].message.role == "assistant"
        assert answer._request_id == answer.id
        stream = await client.chat.completions.create(
            model="tiny",
            messages=MESSAGES,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"min_tokens": 2, "top_k": 5},
        )
        chunks = [chunk async for chunk in stream]
    assert (
        "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        == "Hello"
    )
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 6


async def test_several_outputs_and_their_usage(serve: Any, chains: Any) -> None:
    async with serve(chains()) as server, client_of(server) as client:
        answer = await client.chat.completions.create(
            model="tiny", messages=MESSAGES, n=3, max_tokens=4, user="me", metadata={"a": "b"}
        )
        assert [choice.index for choice in answer.choices] == [0, 1, 2]
        assert answer.usage is not None and answer.usage.completion_tokens == 12
        details = answer.usage.prompt_tokens_details
        assert details is not None and details.cached_tokens == 0
        stream = await client.completions.create(
            model="tiny", prompt="x" * 40, n=2, best_of=2, max_tokens=4, stream=True
        )
        ends = [
            choice.index
            async for chunk in stream
            for choice in chunk.choices
            if choice.finish_reason == "length"
        ]
    assert sorted(ends) == [0, 1]


async def test_logprobs_of_completions(serve: Any, chains: Any) -> None:
    async with serve(chains()) as server, client_of(server) as client:
        answer = await client.completions.create(
            model="tiny", prompt="abc", logprobs=2, echo=True, max_tokens=5
        )
        stream = await client.completions.create(
            model="tiny", prompt="abc", logprobs=2, echo=True, max_tokens=5, stream=True
        )
        chunks = [chunk.choices[0] async for chunk in stream]
    (choice,) = answer.choices
    logprobs = choice.logprobs
    assert logprobs is not None and logprobs.tokens is not None
    assert "".join(logprobs.tokens) == choice.text
    assert logprobs.text_offset == list(range(8))
    assert logprobs.top_logprobs is not None and logprobs.token_logprobs is not None
    assert logprobs.token_logprobs[0] is None
    for token, logprob, top in list(
        zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, strict=True)
    )[1:]:
        assert logprob == top[token] == -ord(token) / 64
    streamed = [chunk.logprobs.tokens or [] for chunk in chunks if chunk.logprobs]
    assert [token for tokens in streamed for token in tokens] == logprobs.tokens


async def test_logprobs_of_chats(serve: Any, chains: Any) -> None:
    async with serve(chains()) as server, client_of(server) as client:
        answer = await client.chat.completions.create(
            model="tiny", messages=MESSAGES, logprobs=True, top_logprobs=2, max_tokens=5
        )
        stream = await client.chat.completions.create(
            model="tiny",
            messages=MESSAGES,
            logprobs=True,
            top_logprobs=2,
            max_tokens=5,
            stream=True,
        )
        chunks = [chunk.choices[0] async for chunk in stream]
    (choice,) = answer.choices
    assert choice.logprobs is not None and choice.logprobs.content is not None
    content = choice.logprobs.content
    assert "".join(entry.token for entry in content) == choice.message.content
    for entry in content:
        assert entry.bytes == list(entry.token.encode())
        assert entry.logprob == -ord(entry.token) / 64
        assert entry.top_logprobs[0].token == entry.token
        assert [top.logprob for top in entry.top_logprobs] == [
            entry.logprob,
            entry.logprob - 1 / 64,
        ]
    streamed = [chunk.logprobs.content or [] for chunk in chunks if chunk.logprobs]
    assert [entry.token for entries in streamed for entry in entries] == [
        entry.token for entry in content
    ]


async def test_models(serve: Any, says: Any) -> None:
    async with serve(says("Hello")) as server, client_of(server) as client:
        assert [model.id async for model in client.models.list()] == ["tiny"]
        assert (await client.models.retrieve("tiny")).id == "tiny"


async def test_mistakes_have_the_clients_exceptions(serve: Any, says: Any) -> None:
    async with serve(says("Hello")) as server, client_of(server) as client:
        with pytest.raises(openai.BadRequestError) as bad:
            await client.completions.create(model="tiny", prompt="x", temperature=3)
        assert (bad.value.param, bad.value.type) == ("temperature", "invalid_request_error")
        with pytest.raises(openai.NotFoundError) as unknown:
            await client.completions.create(model="other", prompt="x")
        assert unknown.value.code == "model_not_found"
        server.gateway.refuse("draining", "draining")
        with pytest.raises(openai.InternalServerError) as draining:
            await client.completions.create(model="tiny", prompt="x")
        assert draining.value.status_code == 503


async def test_a_stream_that_breaks_off_raises_after_its_tokens(serve: Any, emits: Any) -> None:
    executor = emits(*b"ABCDEF", failing=frozenset({(0, 3)}))
    async with serve(executor) as server, client_of(server) as client:
        stream = await client.completions.create(model="tiny", prompt="x", stream=True)
        text = ""
        with pytest.raises(openai.APIError) as broken:
            async for chunk in stream:
                text += chunk.choices[0].text
    assert text == "ABC"
    assert broken.value.code == "engine_error"
