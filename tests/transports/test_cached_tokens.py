"""What the prefix cache saved, as clients are told, and how they narrow who may share."""

from typing import Any

import pytest

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


def cached(answer: dict[str, Any]) -> Any:
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


async def test_cached_tokens_are_told_whole_streamed_and_afterwards(
    serve: Any, chains: Any
) -> None:
    body = {"prompt": "x" * 160, "max_tokens": 2}
    options = {"stream": True, "stream_options": {"include_usage": True}}
    async with serve(chains()) as server:
        _, first = await server.post(COMPLETIONS, body)
        events = await server.events(COMPLETIONS, {**body, **options})
        _, again = await server.post(COMPLETIONS, body)
        last = events[-2][1]
        _, stored = await server.get(f"/v1/requests/{last['id']}/usage")
    assert cached(first) == 0
    assert last["usage"] == again["usage"]
    assert again["usage"] == {
        "prompt_tokens": 160,
        "completion_tokens": 2,
        "total_tokens": 162,
        "prompt_tokens_details": {"cached_tokens": (160 - 1) // 16 * 16},
    }
    assert (stored["input_tokens"], stored["cached_tokens"], stored["output_tokens"]) == (
        160,
        144,
        2,
    )


@pytest.mark.parametrize(("tokens", "hit"), [(64, 48), (65, 64), (16, 0), (1, 0)])
async def test_at_least_one_token_of_a_prompt_is_computed(
    serve: Any, chains: Any, tokens: int, hit: int
) -> None:
    body = {"prompt": "x" * tokens, "max_tokens": 5}
    async with serve(chains()) as server:
        _, first = await server.post(COMPLETIONS, body)
        _, second = await server.post(COMPLETIONS, body)
    assert (cached(first), cached(second)) == (0, hit)
    assert first["choices"] == second["choices"]


async def test_our_own_doors_tell_too(serve: Any, chains: Any) -> None:
    usage = {"input_tokens": 40, "cached_tokens": 32, "output_tokens": 3}
    ask = {"prompt": "x" * 40, "max_tokens": 3}
    async with serve(chains()) as server:
        first = await server.events("/generate", ask)
        second = await server.events("/generate", ask)
        async with server.session.ws_connect(server.url + "/v1/stream") as socket:
            await socket.send_json({"type": "generate", "id": "a", **ask})
            message = await socket.receive_json()
            while message["type"] != "done":
                message = await socket.receive_json()
    assert first[-1][1]["usage"] == {**usage, "cached_tokens": 0}
    assert second[-1][1]["usage"] == message["usage"] == usage


async def test_a_prompts_outputs_count_what_was_cached_once(serve: Any, chains: Any) -> None:
    async with serve(chains()) as server:
        await server.post(COMPLETIONS, {"prompt": "x" * 40, "max_tokens": 1})
        _, several = await server.post(
            COMPLETIONS, {"prompt": ["x" * 40, "y" * 40], "n": 3, "max_tokens": 1}
        )
    assert several["usage"]["prompt_tokens"] == 80
    assert cached(several) == 32


async def test_a_salt_narrows_on_every_door(serve: Any, chains: Any) -> None:
    prompt = {"prompt": "x" * 40, "max_tokens": 1}
    chat = {"messages": [{"role": "user", "content": "x" * 40}], "max_tokens": 1}
    async with serve(chains()) as server:

        async def hits(salt: str | None) -> list[int]:
            _, completion = await server.post(COMPLETIONS, {**prompt, "cache_salt": salt})
            _, reply = await server.post(CHAT, {**chat, "cache_salt": salt})
            events = await server.events("/generate", {**prompt, "cache_salt": salt})
            return [cached(completion), cached(reply), events[-1][1]["usage"]["cached_tokens"]]

        assert await hits(None) == [0, 0, 32]
        assert await hits("pepper") == [0, 0, 32]
        assert await hits("x" * 128) == [0, 0, 32]
        salted = await hits("pepper")
        assert salted == await hits(None)
        assert salted[0] == salted[2] == 32 and salted[1] > 0
