"""Log-probabilities: one a token, whatever happened to its sequence on the way."""

from typing import Any

import anyio
import attrs
import numpy as np
import pytest

from plancha.calls.call import Call
from plancha.contracts import Geometry
from plancha.messages import Logprobs
from plancha.streams.token_logprobs import LEAST_LOGPROB, TokenLogprob, token_logprobs
from plancha.testing.embedded import Limits, embedded
from plancha.testing.executors import ChainExecutor, chain
from plancha_text.byte_text import byte_text

GEOMETRY = Geometry(blocks=64, context_length=256, vocabulary=264, stop_ids=(257,))


def foretold(token: int) -> TokenLogprob:
    return TokenLogprob(token, -token / 64, ((token, -token / 64), (token + 1, -(token + 1) / 64)))


async def answer(gateway: Any, prompt: str, **fields: Any) -> tuple[list[TokenLogprob], Any]:
    got: list[TokenLogprob] = []
    call = Call(model=None, prompts=(prompt,), **fields)
    async with await gateway.generate(call) as generation:
        async for deltas in generation:
            for delta in deltas:
                if delta.token is not None:
                    got.append(delta.logprob)
    return got, generation


@pytest.mark.parametrize("blocks", [64, 12])
async def test_every_token_has_one_entry_also_after_a_preemption(blocks: int) -> None:
    executor = ChainExecutor(attrs.evolve(GEOMETRY, blocks=blocks))
    async with embedded(executor, byte_text()) as kernel:
        answers: dict[str, list[TokenLogprob]] = {}

        async def client(prompt: str) -> None:
            answers[prompt], _ = await answer(kernel.gateway, prompt, max_tokens=96, logprobs=2)

        async with anyio.create_task_group() as clients:
            for prompt in ("a" * 48, "b" * 48):
                clients.start_soon(client, prompt)
        assert kernel.planner is not None
        assert (kernel.planner.preemptions > 0) is (blocks == 12)
    for prompt, got in answers.items():
        assert got == [foretold(token) for token in chain(list(prompt.encode()), 96)]


async def test_who_did_not_ask_gets_none_beside_one_who_did() -> None:
    async with embedded(ChainExecutor(GEOMETRY), byte_text()) as kernel:
        silent = await kernel.gateway.generate(Call(model=None, prompts=("x",), max_tokens=5))
        asked, _ = await answer(kernel.gateway, "x", max_tokens=5, logprobs=0)
        async with silent:
            deltas = [delta async for some in silent for delta in some]
    assert [delta.logprob for delta in deltas] == [None] * 6
    expected = chain([120], 5)
    assert asked == [TokenLogprob(token, -token / 64, ()) for token in expected]


@pytest.mark.parametrize("budget", [24, 64])
async def test_a_prompts_tokens_are_reported_once_from_the_second_on(budget: int) -> None:
    prompt = "".join(chr(40 + i % 80) for i in range(100))
    limits = Limits(max_batched_tokens=budget)
    async with embedded(ChainExecutor(GEOMETRY), byte_text(), limits=limits) as kernel:
        for _ in range(2):  # the second time it is cached, and must be computed all the same
            got, generation = await answer(
                kernel.gateway, prompt, max_tokens=1, logprobs=1, prompt_logprobs=True
            )
            reported = generation.streams[0].prompt_logprobs
            assert [entry.token for entry in reported] == list(prompt.encode())[1:]
            assert [entry.logprob for entry in reported] == [
                -byte / 64 for byte in prompt.encode()[1:]
            ]
            assert len(got) == 1
            assert generation.record.cached_tokens == 0


def test_minus_infinity_is_floored_and_nan_never_passes() -> None:
    low = np.array([-np.inf, np.nan], np.float32)
    columns = Logprobs(low, np.array([[1], [2]], np.int32), low[:, None])
    for entry in token_logprobs(np.array([1, 2], np.int32), columns, 1):
        assert entry.logprob == LEAST_LOGPROB
        assert entry.top[0][1] == LEAST_LOGPROB
