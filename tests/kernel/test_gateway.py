"""What a gateway refuses by itself, and what it remembers of requests."""

from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from plancha.calls.call import Call
from plancha.contracts import Geometry
from plancha.failure import RequestFailed
from plancha.gateway import Gateway
from plancha.sampling import Sampling
from plancha.testing.client import collect, quiet
from plancha.testing.embedded import Limits, embedded
from plancha.testing.executors import ScriptExecutor
from plancha.testing.gate import GatedExecutor
from plancha_text.byte_text import byte_text

EOS = 257
GEOMETRY = Geometry(blocks=64, context_length=256, vocabulary=264, stop_ids=(EOS,))


def script(*ids: int) -> ScriptExecutor:
    return ScriptExecutor(lambda prompt: ids, GEOMETRY)


def call(prompt: str = "xxx", **fields: Any) -> Call:
    return Call(model=None, prompts=(prompt,), **fields)


async def test_what_admission_refuses_raises_before_any_token_and_leaves_no_record() -> None:
    async with embedded(script(65), byte_text()) as kernel:
        with pytest.raises(RequestFailed) as refused:
            async with await kernel.gateway.generate(call("x" * 250, max_tokens=7)) as generation:
                await anext(generation)
        assert refused.value.failure.code == "context_length_exceeded"
        with pytest.raises(RequestFailed):
            kernel.gateway.record(generation.record.id, "default")
        assert kernel.gateway.running == 0


async def test_an_absurdly_long_prompt_is_refused_before_it_is_tokenised() -> None:
    async with embedded(script(65), byte_text()) as kernel:
        with pytest.raises(RequestFailed) as refused:
            await kernel.gateway.generate(call("x" * 8_000_000))
        assert refused.value.failure.code == "context_length_exceeded"


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        (Call(model=None, prompts=((-1,),)), "prompt"),
        (Call(model=None, prompts=((264,),)), "prompt"),
        (Call(model=None, prompts=((261,),)), "prompt"),
        (Call(model=None, prompts=((10**20,),)), "prompt"),
        (Call(model=None, prompts=((),)), "prompt"),
        (Call(model=None, prompts=("",)), "prompt"),
        (Call(model=None), "prompt"),
        (call(sampling=Sampling(logit_bias=((264, 5.0),))), "logit_bias"),
        (call(sampling=Sampling(stop_token_ids=(999_999,))), "stop_token_ids"),
        (call(sampling=Sampling(stop_token_ids=(-1,))), "stop_token_ids"),
        (Call(model="TINY", prompts=("x",)), "model"),
        (Call(model="m" * 10_000, prompts=("x",)), "model"),
    ],
)
async def test_bad_calls_are_refused_by_parameter(asked: Call, param: str) -> None:
    async with embedded(script(65), byte_text()) as kernel:
        with pytest.raises(RequestFailed) as refused:
            await kernel.gateway.generate(asked)
        assert refused.value.failure.param == param
        assert len(refused.value.failure.message) < 300
        assert (await collect(kernel.gateway, call(max_tokens=2)))[0] == "AA"


async def test_messages_of_which_the_template_makes_nothing_are_refused_and_nobody_suffers() -> (
    None
):
    contents_alone = "{% for message in messages %}{{ message.content }}{% endfor %}"
    async with embedded(script(65), byte_text(chat_template=contents_alone)) as kernel:
        with pytest.raises(RequestFailed) as refused:
            await collect(
                kernel.gateway, Call(model=None, messages=({"role": "user", "content": ""},))
            )
        assert refused.value.failure.param == "messages"
        assert (await collect(kernel.gateway, call(max_tokens=2)))[0] == "AA"


async def test_a_request_is_queued_then_generating_then_done_for_its_tenant_alone() -> None:
    gated = GatedExecutor(script(65))
    async with embedded(gated, byte_text()) as kernel:
        gateway = kernel.gateway
        async with await gateway.generate(call(max_tokens=3)) as generation:
            request = generation.record.id
            assert gateway.record(request, "default").state == "queued"
            with pytest.raises(RequestFailed) as unknown:
                gateway.record(request, "somebody-else")
            assert unknown.value.failure.kind == "not_found"
            await gated.started()
            await anyio.wait_all_tasks_blocked()
            assert gateway.record(request, "default").state == "generating"
            gated.open()
            async for _ in generation:
                pass
        record = gateway.record(request, "default")
        assert (record.state, record.outcome) == ("done", "completed")
        assert (record.input_tokens, record.output_tokens) == (3, 3)


async def test_before_the_model_is_loaded_requests_are_refused_as_unavailable() -> None:
    with pytest.raises(RequestFailed) as refused:
        await Gateway("tiny").generate(call())
    assert (refused.value.failure.kind, refused.value.failure.code) == ("unavailable", "loading")


async def test_the_latest_ended_requests_are_remembered_and_the_running_never_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("plancha.gateway.REMEMBERED_REQUESTS", 3)
    gated = GatedExecutor(script(65))
    async with embedded(gated, byte_text()) as kernel:
        gateway = kernel.gateway
        running = [await gateway.generate(call(max_tokens=3)) for _ in range(5)]
        for generation in running:
            assert gateway.record(generation.record.id, "default").state != "done"
        gated.open()
        await quiet(kernel)
        for _ in range(4):
            _, _, last = await collect(gateway, call(max_tokens=1))
        with pytest.raises(RequestFailed):
            gateway.record(running[0].record.id, "default")
        assert gateway.record(last.record.id, "default") is last.record


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what is about to hold; the hang guard is no expectation."""
    with anyio.fail_after(30):
        while not holds():  # noqa: ASYNC110
            await anyio.sleep(0.001)


async def test_a_gateway_notices_that_steps_have_stopped_and_that_they_go_on() -> None:
    gated = GatedExecutor(script(65))
    async with embedded(gated, byte_text(), step_deadline_s=0.05) as kernel:
        gateway = kernel.gateway
        async with await gateway.generate(call(max_tokens=3)) as generation:
            await until(lambda: gateway.stalled)
            assert gateway.state == "ready"
            generation.cancel()
            await until(lambda: not gateway.running)
            gated.open()
            await until(lambda: not gateway.stalled)
        assert (await collect(gateway, call(max_tokens=2)))[0] == "AA"


async def test_who_reads_too_slowly_does_not_wait_for_a_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited_for: list[bool] = []

    class Watch:
        interval_s = 0.001
        stalled = False

        def look(self, steps: int | None, wanted: bool, now: float) -> None:
            waited_for.append(wanted)

    monkeypatch.setattr("plancha.gateway.StallWatch", lambda deadline_s: Watch())
    gated = GatedExecutor(script(65))
    async with embedded(gated, byte_text(), step_deadline_s=1) as kernel:
        await until(lambda: waited_for[-1:] == [False])
        async with await kernel.gateway.generate(call(max_tokens=3)) as generation:
            await until(lambda: waited_for[-1])
            await gated.run(1)
            await until(lambda: bool(generation.streams[0].tokens))
            generation.hold(1)
            planner = kernel.planner
            assert planner is not None
            await until(lambda: all(each.paused for each in planner.sequences.values()))
            assert waited_for[-1]  # for the step in flight
            gated.commit()
            await until(lambda: not waited_for[-1])
            assert kernel.gateway.running == 1
            gated.open()


async def test_a_step_that_brings_nobody_a_token_is_heard_of() -> None:
    gated = GatedExecutor(script(65))
    async with (
        embedded(gated, byte_text(), limits=Limits(max_batched_tokens=32)) as kernel,
        await kernel.gateway.generate(call("x" * 200, max_tokens=1)) as generation,
    ):
        for steps in range(1, 5):
            await gated.run(1)
            await until(lambda: kernel.gateway.load is not None)
            await until(lambda steps=steps: kernel.gateway.load.steps == steps)  # type: ignore[misc,union-attr]
            assert generation.streams[0].tokens == []
        gated.open()


async def test_a_long_list_of_ids_is_refused_before_each_is_looked_at() -> None:
    async with embedded(script(65), byte_text()) as kernel:
        with pytest.raises(RequestFailed) as refused:
            await kernel.gateway.generate(Call(model=None, prompts=((-1,) * 1000,)))
        assert refused.value.failure.code == "context_length_exceeded"
