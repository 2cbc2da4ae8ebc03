"""`logprobs` of `/v1/completions`."""

import json
from typing import Any

import anyio
import attrs
import numpy as np
import pytest

from plancha.messages import Logprobs
from plancha.plans import Plan, StepDone
from plancha.testing.executors import ScriptExecutor, chain

PATH = "/v1/completions"
LISTS = ("tokens", "token_logprobs", "top_logprobs", "text_offset")


def empty() -> dict[str, list[Any]]:
    return {name: [] for name in LISTS}


def joined(events: list[Any], index: int = 0) -> tuple[str, dict[str, list[Any]]]:
    """The text and the log-probabilities of one choice, from its chunks."""
    text, found = "", empty()
    for _, data in events[:-1]:
        for choice in data["choices"]:
            if choice["index"] == index:
                text += choice["text"]
                for name, values in (choice["logprobs"] or empty()).items():
                    found[name] += values
    return text, found


def foretold(text: str, offset: int = 0) -> dict[str, Any]:
    """What the scripted executors report of ASCII text, two alternatives each."""
    return {
        "tokens": list(text),
        "token_logprobs": [-ord(each) / 64 for each in text],
        "top_logprobs": [
            {each: -ord(each) / 64, chr(ord(each) + 1): -(ord(each) + 1) / 64} for each in text
        ],
        "text_offset": [offset + place for place in range(len(text))],
    }


async def both(server: Any, body: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """The same request whole, its choice, and streamed, its events; they must say the same."""
    status, answer = await server.post(PATH, body)
    assert status == 200, answer
    events = await server.events(PATH, {**body, "stream": True})
    for choice in answer["choices"]:
        assert joined(events, choice["index"]) == (choice["text"], choice["logprobs"])
    return answer["choices"][0], events


async def test_every_token_has_its_entry_in_the_chunk_of_its_text(
    serve: Any, foretells: Any
) -> None:
    async with serve(foretells(*b"Hey", 257)) as server:
        choice, events = await both(server, {"prompt": "x", "logprobs": 2})
    assert (choice["text"], choice["logprobs"]) == ("Hey", foretold("Hey"))
    chunks = [data["choices"][0] for _, data in events[:-1]]
    assert all(
        chunk["text"] == "".join(chunk["logprobs"]["tokens"])
        for chunk in chunks
        if chunk["logprobs"] is not None
    )
    assert (chunks[-1]["logprobs"], chunks[-1]["finish_reason"]) == (None, "stop")


@pytest.mark.parametrize(("logprobs", "tops"), [(0, "H"), (1, "H"), (2, "HI")])
async def test_the_token_itself_is_always_among_its_alternatives(
    serve: Any, foretells: Any, logprobs: int, tops: str
) -> None:
    async with serve(foretells(72)) as server:
        choice, _ = await both(server, {"prompt": "x", "logprobs": logprobs, "max_tokens": 1})
    expected = {each: -ord(each) / 64 for each in tops}
    assert choice["logprobs"]["top_logprobs"] == [expected]
    assert list(choice["logprobs"]["top_logprobs"][0]) == list(tops)


async def test_without_logprobs_there_are_none(serve: Any, foretells: Any) -> None:
    async with serve(foretells(72)) as server:
        _, answer = await server.post(PATH, {"prompt": "x", "logprobs": None})
        events = await server.events(PATH, {"prompt": "x", "stream": True})
    assert answer["choices"][0]["logprobs"] is None
    assert all(data["choices"][0]["logprobs"] is None for _, data in events[:-1])


async def test_an_answer_of_nothing_has_lists_of_nothing(serve: Any, foretells: Any) -> None:
    async with serve(foretells(257)) as server:
        choice, events = await both(server, {"prompt": "x", "logprobs": 1})
    assert choice["logprobs"] == empty()
    assert [data["choices"][0]["finish_reason"] for _, data in events[:-1]] == ["stop"]


async def test_text_that_a_stop_string_held_back_brings_its_entries(
    serve: Any, foretells: Any
) -> None:
    body = {"prompt": "x", "stop": ["NOPQRST"], "logprobs": 2}
    async with serve(foretells(*b"KLMNOPQX", 257)) as server:
        choice, events = await both(server, body)
    assert choice["logprobs"] == foretold("KLMNOPQX")
    for _, data in events[:-1]:
        chunk = data["choices"][0]
        assert "".join((chunk["logprobs"] or empty())["tokens"]) == chunk["text"]


async def test_tokens_after_the_cut_of_a_stop_string_have_no_entry(
    serve: Any, foretells: Any
) -> None:
    body = {"prompt": "x", "stop": ["NOP"], "logprobs": 2, "max_tokens": 30}
    async with serve(foretells(*b"KLMNOPQ")) as server:
        choice, _ = await both(server, body)
        await server.quiet()
    assert (choice["text"], choice["finish_reason"]) == ("KLM", "stop")
    assert choice["logprobs"] == foretold("KLM")


async def test_a_token_that_the_cut_goes_through_keeps_its_entry_whole(
    serve: Any, foretells: Any
) -> None:
    body = {
        "prompt": "x",
        "stop": ["im_"],
        "logprobs": 0,
        "skip_special_tokens": False,
    }
    async with serve(foretells(65, 258, 66)) as server:
        choice, _ = await both(server, body)
    assert choice["text"] == "A<|"
    assert choice["logprobs"]["tokens"] == ["A", "<|im_start|>"]
    assert choice["logprobs"]["text_offset"] == [0, 1]


async def test_parts_of_a_character_come_with_it_and_are_written_as_bytes(
    serve: Any, foretells: Any
) -> None:
    async with serve(foretells(65, *"🙂".encode(), 66, 257)) as server:
        choice, events = await both(server, {"prompt": "x", "logprobs": 0})
    assert choice["text"] == "A🙂B"
    assert choice["logprobs"]["tokens"] == [
        "A",
        r"bytes:\xf0",
        r"bytes:\x9f",
        r"bytes:\x99",
        r"bytes:\x82",
        "B",
    ]
    assert choice["logprobs"]["text_offset"] == [0, 1, 1, 1, 1, 2]
    for _, data in events[:-1]:
        chunk = data["choices"][0]
        tokens = (chunk["logprobs"] or empty())["tokens"]
        assert ("🙂" in chunk["text"]) == (r"bytes:\xf0" in tokens) == (r"bytes:\x82" in tokens)


async def test_the_start_of_a_character_at_the_very_end_has_its_entry(
    serve: Any, foretells: Any
) -> None:
    async with serve(foretells(65, 0xF0)) as server:
        choice, _ = await both(server, {"prompt": "x", "logprobs": 0, "max_tokens": 2})
    assert choice["text"] == "A\ufffd"
    assert choice["logprobs"]["tokens"] == ["A", r"bytes:\xf0"]
    async with serve(foretells(65, 0xF0, 257)) as server:
        stopped, _ = await both(server, {"prompt": "x", "logprobs": 0})
    assert (stopped["text"], stopped["logprobs"]) == (choice["text"], choice["logprobs"])


async def test_hidden_tokens_in_the_midst_have_entries_and_the_ending_one_has_none(
    serve: Any, foretells: Any
) -> None:
    async with serve(foretells(65, 258, 66, 259, 257)) as server:
        choice, _ = await both(server, {"prompt": "x", "logprobs": 0})
        ended, _ = await both(server, {"prompt": "x", "logprobs": 0, "stop_token_ids": [66]})
    assert choice["text"] == "AB"
    assert choice["logprobs"]["tokens"] == ["A", "<|im_start|>", "B", "<|im_end|>"]
    assert choice["logprobs"]["text_offset"] == [0, 1, 1, 2]
    assert ended["text"] == "A"
    assert ended["logprobs"]["tokens"] == ["A", "<|im_start|>"]


async def test_alternatives_written_alike_show_the_better_and_ids_without_text_are_empty(
    serve: Any, foretells: Any
) -> None:
    async with serve(foretells(260)) as server:  # its alternatives are 260 and 261
        choice, _ = await both(server, {"prompt": "x", "logprobs": 2, "max_tokens": 1})
    assert choice["logprobs"]["tokens"] == [""]
    assert choice["logprobs"]["top_logprobs"] == [{"": -260 / 64}]


@pytest.mark.parametrize("blocks", [64, 12])
async def test_a_preempted_request_has_one_entry_a_token(
    serve: Any, chains: Any, blocks: int
) -> None:
    prompts = ["a" * 48, "b" * 48]
    found: dict[str, Any] = {}
    async with serve(chains(blocks=blocks)) as server:

        async def ask(prompt: str, stream: bool) -> None:
            body = {"prompt": prompt, "max_tokens": 96, "logprobs": 2}
            if stream:
                found[prompt] = joined(await server.events(PATH, {**body, "stream": True}))
            else:
                _, answer = await server.post(PATH, body)
                found[prompt] = tuple(answer["choices"][0][key] for key in ("text", "logprobs"))

        async with anyio.create_task_group() as tasks:
            for prompt, stream in zip(prompts, (False, True), strict=True):
                tasks.start_soon(ask, prompt, stream)
        assert (server.kernel.planner.preemptions > 0) is (blocks == 12)
        await server.quiet()
    for prompt in prompts:
        text = bytes(chain(prompt.encode(), 96)).decode()
        assert found[prompt] == (text, foretold(text))


@attrs.define(eq=False)
class Certain(ScriptExecutor):
    """Sure of its token: everything else is impossible, and one thing is not even a number."""

    def step(self, plan: Plan) -> StepDone:
        done = super().step(plan)
        rows = done.tokens.size
        ids = np.tile(np.arange(65, 70, dtype=np.int32), (rows, 1))
        top = np.tile(np.array([0, -np.inf, -np.inf, -np.inf, np.nan], np.float32), (rows, 1))
        chosen = np.full(rows, -np.inf, np.float32)
        return attrs.evolve(done, logprobs=Logprobs(chosen, ids, top))


async def test_the_impossible_is_a_number_that_strict_json_has(serve: Any, emits: Any) -> None:
    executor = Certain(lambda prompt: (66,), emits(66).geometry)
    body = {"prompt": "x", "top_k": 1, "temperature": 1, "logprobs": 5, "max_tokens": 2}
    async with serve(executor) as server:
        for stream in (False, True):
            async with server.session.post(
                server.url + PATH, json={**body, "stream": stream}
            ) as response:
                assert response.status == 200
                raw = await response.text()
                assert "Infinity" not in raw and "NaN" not in raw
        choice, _ = await both(server, body)
    json.dumps(choice, allow_nan=False)
    assert choice["logprobs"]["token_logprobs"] == [-9999.0] * 2
    assert choice["logprobs"]["top_logprobs"][0] == {
        "A": 0.0,
        "B": -9999.0,
        "C": -9999.0,
        "D": -9999.0,
        "E": -9999.0,
    }


async def test_who_did_not_ask_pays_nothing_for_who_did(serve: Any, chains: Any) -> None:
    answers: dict[Any, Any] = {}
    async with serve(chains()) as server:

        async def ask(logprobs: int | None) -> None:
            body = {"prompt": f"asks for {logprobs}", "logprobs": logprobs}
            _, answers[logprobs] = await server.post(PATH, body)

        async with anyio.create_task_group() as tasks:
            for logprobs in (None, 0, 2):
                tasks.start_soon(ask, logprobs)
    assert answers[None]["choices"][0]["logprobs"] is None
    sizes = {
        asked: [len(top) for top in answers[asked]["choices"][0]["logprobs"]["top_logprobs"]]
        for asked in (0, 2)
    }
    assert sizes == {0: [1] * 16, 2: [2] * 16}


async def test_our_own_doors_have_no_logprobs(serve: Any, emits: Any) -> None:
    async with serve(emits(65)) as server:
        for value in (0, 5, True):
            status, error = await server.refusal("/generate", {"prompt": "x", "logprobs": value})
            assert (status, error["param"]) == (400, "logprobs")
