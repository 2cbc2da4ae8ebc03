"""`echo` with `logprobs`: prompts that are scored."""

from typing import Any

import anyio
import pytest

from plancha.testing.executors import chain
from plancha_text.byte_text import byte_text

PATH = "/v1/completions"


async def both(server: Any, body: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """The first choice of the whole answer, and the chunks, which must say the same."""
    status, answer = await server.post(PATH, body)
    assert status == 200, answer
    events = await server.events(PATH, {**body, "stream": True})
    for choice in answer["choices"]:
        text = ""
        logprobs: dict[str, list[Any]] = {name: [] for name in choice["logprobs"]}
        for _, data in events[:-1]:
            (part,) = data["choices"]
            if part["index"] == choice["index"]:
                text += part["text"]
                for name, values in (part["logprobs"] or {}).items():
                    logprobs[name] += values
        assert (text, logprobs) == (choice["text"], choice["logprobs"])
    return answer["choices"][0], events


@pytest.mark.parametrize("prompt", ["abcde", [97, 98, 99, 100, 101]])
async def test_an_echo_has_the_prompts_entries_first(serve: Any, chains: Any, prompt: Any) -> None:
    body = {"prompt": prompt, "echo": True, "logprobs": 2, "max_tokens": 4}
    output = bytes(chain(b"abcde", 4)).decode()
    async with serve(chains()) as server:
        choice, events = await both(server, body)
    assert choice["text"] == "abcde" + output
    ids = [ord(each) for each in choice["text"]]
    tops = [{chr(id_): -id_ / 64, chr(id_ + 1): -(id_ + 1) / 64} for id_ in ids]
    assert choice["logprobs"] == {
        "tokens": list(choice["text"]),
        "token_logprobs": [None, *[-id_ / 64 for id_ in ids[1:]]],
        "top_logprobs": [None, *tops[1:]],
        "text_offset": list(range(9)),
    }
    first = events[0][1]["choices"][0]
    assert (first["text"], first["logprobs"]["tokens"]) == ("abcde", list("abcde"))


async def test_a_prompt_alone_can_be_scored(serve: Any, chains: Any) -> None:
    body = {"prompt": "abc", "echo": True, "logprobs": 1, "max_tokens": 0}
    async with serve(chains()) as server:
        choice, events = await both(server, body)
        _, answer = await server.post(PATH, {**body, "n": 2, "prompt": ["abc", "d"]})
        await server.quiet()
    assert (choice["text"], choice["finish_reason"]) == ("abc", "length")
    assert choice["logprobs"]["token_logprobs"] == [None, -98 / 64, -99 / 64]
    assert choice["logprobs"]["text_offset"] == [0, 1, 2]
    assert len(events) == 3
    assert [each["logprobs"]["tokens"] for each in answer["choices"]] == [
        ["a", "b", "c"],
        ["a", "b", "c"],
        ["d"],
        ["d"],
    ]
    assert answer["usage"]["completion_tokens"] == 0


async def test_cached_prompts_are_scored_all_the_same(serve: Any, chains: Any) -> None:
    prompt = "abcdefghijklmnopqrstuvwxyz0123456"
    body = {"prompt": prompt, "echo": True, "logprobs": 1, "max_tokens": 1}
    async with serve(chains()) as server:
        _, first = await server.post(PATH, body)
        async with anyio.create_task_group() as tasks:
            sharing = {"prompt": prompt[:16] + "shared", "max_tokens": 100}
            tasks.start_soon(server.post, PATH, sharing)
            _, second = await server.post(PATH, body)
    logprobs = first["choices"][0]["logprobs"]
    assert second["choices"][0]["logprobs"] == logprobs
    assert len(logprobs["tokens"]) == 33 + 1
    assert logprobs["token_logprobs"][:33] == [None, *[-ord(each) / 64 for each in prompt[1:]]]
    assert second["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}


async def test_outputs_of_a_prompt_all_have_its_entries(serve: Any, chains: Any) -> None:
    prompt = "abcdefghijklmnopqrstuvwxyz"
    body = {"prompt": [prompt, "xy"], "n": 3, "echo": True, "logprobs": 0, "max_tokens": 2}
    async with serve(chains()) as server:
        _, answer = await server.post(PATH, body)
        await both(server, body)
    for choice in answer["choices"]:
        assert "".join(choice["logprobs"]["tokens"]) == choice["text"]
        assert choice["logprobs"]["text_offset"] == list(range(len(choice["text"])))


async def test_what_a_tokenizer_adds_to_the_prompt_is_at_its_beginning(
    serve: Any, chains: Any
) -> None:
    body = {"prompt": "ab<|im_end|>c", "echo": True, "logprobs": 0, "max_tokens": 1}
    async with serve(chains(), text=byte_text(adds_bos=True)) as server:
        choice, _ = await both(server, body)
        ids = await both(server, {**body, "prompt": [256, 97, 259, 99]})
    assert choice["text"].startswith("ab<|im_end|>c")
    assert choice["logprobs"]["tokens"][:5] == ["<bos>", "a", "b", "<|im_end|>", "c"]
    assert choice["logprobs"]["text_offset"] == [0, 0, 1, 2, 12, 13]
    assert choice["logprobs"]["token_logprobs"][0] is None
    assert ids[0]["text"].startswith("ac")
    assert ids[0]["logprobs"]["tokens"][:4] == ["<bos>", "a", "<|im_end|>", "c"]
    assert ids[0]["logprobs"]["text_offset"] == [0, 0, 1, 1, 2]
