"""`logprobs` and `top_logprobs` of `/v1/chat/completions`."""

from typing import Any

import pytest

PATH = "/v1/chat/completions"
ASKED: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi?"}]}


def foretold(*tokens: str, alternatives: int = 2) -> list[dict[str, Any]]:
    """What the scripted executors report of one-byte characters."""
    return [
        {
            **scored(token),
            "top_logprobs": [scored(token), scored(chr(ord(token) + 1))][:alternatives],
        }
        for token in tokens
    ]


def scored(token: str) -> dict[str, Any]:
    return {"token": token, "bytes": [ord(token)], "logprob": -ord(token) / 64}


async def both(server: Any, body: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The choice of the whole answer and those of the chunks, which must say the same."""
    _, answer = await server.post(PATH, body)
    events = await server.events(PATH, {**body, "stream": True})
    chunks = [choice for _, data in events[:-1] for choice in data["choices"]]
    (choice,) = answer["choices"]
    text = "".join(chunk["delta"].get("content", "") for chunk in chunks)
    found = [chunk["logprobs"] for chunk in chunks if chunk["logprobs"] is not None]
    assert text == choice["message"]["content"]
    assert [entry for each in found for entry in each["content"]] == choice["logprobs"]["content"]
    assert all(each["refusal"] is None for each in (*found, choice["logprobs"]))
    return choice, chunks


async def test_every_token_has_its_entry_in_the_chunk_of_its_text(
    serve: Any, foretells: Any
) -> None:
    async with serve(foretells(*b"Hey", 257)) as server:
        choice, chunks = await both(server, {**ASKED, "logprobs": True, "top_logprobs": 2})
    assert choice["logprobs"] == {"content": foretold("H", "e", "y"), "refusal": None}
    opening, *rest, end = chunks
    assert opening["logprobs"] is None and end["logprobs"] is None
    for chunk in rest:
        tokens = [entry["token"] for entry in chunk["logprobs"]["content"]]
        assert "".join(tokens) == chunk["delta"]["content"]


@pytest.mark.parametrize("asked", [{}, {"top_logprobs": 0}, {"top_logprobs": 1}])
async def test_alternatives_are_as_many_as_asked_for(
    serve: Any, foretells: Any, asked: dict[str, int]
) -> None:
    async with serve(foretells(*b"Hey", 257)) as server:
        choice, _ = await both(server, {**ASKED, "logprobs": True, **asked})
    alternatives = asked.get("top_logprobs", 0)
    expected = foretold("H", "e", "y", alternatives=alternatives)
    assert choice["logprobs"]["content"] == expected


async def test_bytes_are_exact_where_text_cannot_be(serve: Any, foretells: Any) -> None:
    body = {**ASKED, "logprobs": True, "max_tokens": 7}
    async with serve(foretells(*"🙂".encode(), 258, 65, 261)) as server:
        choice, chunks = await both(server, body)
    assert choice["message"]["content"] == "🙂A"
    tokens = [(entry["token"], entry["bytes"]) for entry in choice["logprobs"]["content"]]
    assert tokens == [
        (r"\xf0", [0xF0]),
        (r"\x9f", [0x9F]),
        (r"\x99", [0x99]),
        (r"\x82", [0x82]),
        ("<|im_start|>", list(b"<|im_start|>")),
        ("A", [65]),
        ("", None),
    ]
    whole = [chunk for chunk in chunks if "🙂" in chunk["delta"].get("content", "")]
    assert len(whole) == 1
    together = b"".join(bytes(each["bytes"]) for each in whole[0]["logprobs"]["content"][:4])
    assert together.decode() == "🙂"


async def test_a_held_back_end_brings_its_entries_and_a_cut_takes_them(
    serve: Any, foretells: Any
) -> None:
    body = {**ASKED, "logprobs": True, "top_logprobs": 2, "stop": ["NOPQRST"], "max_tokens": 20}
    async with serve(foretells(*b"KLMNOPQX", 257)) as server:
        choice, _ = await both(server, body)
    assert choice["logprobs"]["content"] == foretold(*"KLMNOPQX")
    async with serve(foretells(*b"KLMNOPQRSTU")) as server:
        choice, _ = await both(server, body)
    assert choice["logprobs"]["content"] == foretold(*"KLM")


async def test_without_logprobs_there_are_none(serve: Any, foretells: Any) -> None:
    async with serve(foretells(72)) as server:
        for asked in ({}, {"logprobs": False}, {"logprobs": None, "top_logprobs": 0}):
            _, answer = await server.post(PATH, {**ASKED, **asked, "max_tokens": 1})
            assert answer["choices"][0]["logprobs"] is None


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"logprobs": 1}, "logprobs"),
        ({"logprobs": "true"}, "logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": True}, "top_logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": False, "top_logprobs": 2}, "top_logprobs"),
    ],
)
async def test_what_cannot_be_meant_is_refused(
    serve: Any, foretells: Any, asked: dict[str, Any], param: str
) -> None:
    async with serve(foretells(72)) as server:
        for stream in (False, True):
            status, error = await server.refusal(PATH, {**ASKED, **asked, "stream": stream})
            assert (status, error["param"]) == (400, param)
