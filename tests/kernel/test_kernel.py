"""Gateway, tasks and channels together: a real event loop, scripted tokens, gated steps."""

from typing import Any

import anyio
import anyio.lowlevel
import attrs
import pytest
from anyio import create_task_group

from plancha.calls.call import Call
from plancha.contracts import Executor, Geometry, Progress, Site
from plancha.failure import Failure, RequestFailed
from plancha.gateway import Gateway
from plancha.kernel import Kernel, Worker
from plancha.plans import Plan, StepDone
from plancha.sampling import Sampling
from plancha.streams.outbox import Delta
from plancha.testing.client import collect, quiet
from plancha.testing.embedded import embedded
from plancha.testing.executors import ChainExecutor, ScriptExecutor, chain
from plancha.testing.gate import GatedExecutor
from plancha_allocators.paged import paged
from plancha_schedulers.fcfs import fcfs
from plancha_text.byte_text import byte_text

EOS = 257
GEOMETRY = Geometry(blocks=64, context_length=256, vocabulary=264, stop_ids=(EOS,))


def script(*ids: int, failing: frozenset[tuple[int, int]] = frozenset()) -> ScriptExecutor:
    return ScriptExecutor(lambda prompt: ids, GEOMETRY, failing=failing)


def call(prompt: str = "xxx", **fields: Any) -> Call:
    return Call(model=None, prompts=(prompt,), **fields)


def letters(ids: list[int]) -> str:
    return bytes(ids).decode()


async def test_many_clients_at_once_get_their_own_answers() -> None:
    geometry = attrs.evolve(GEOMETRY, blocks=30)  # less than all want together
    answers: dict[str, str] = {}
    async with embedded(ChainExecutor(geometry), byte_text()) as kernel:

        async def client(prompt: str, tokens: int) -> None:
            answers[prompt], _, _ = await collect(kernel.gateway, call(prompt, max_tokens=tokens))

        async with create_task_group() as clients:
            asked = {f"{i}:" + "x" * (i * 7 % 60): 20 + i for i in range(40)}
            for prompt, tokens in asked.items():
                clients.start_soon(client, prompt, tokens)
        assert kernel.planner is not None and kernel.planner.preemptions > 0
        await quiet(kernel)
    for prompt, tokens in asked.items():
        assert answers[prompt] == letters(chain(list(prompt.encode()), tokens))


async def test_a_client_that_leaves_is_gone_one_step_later() -> None:
    gated = GatedExecutor(script(65))
    async with embedded(gated, byte_text()) as kernel:
        generation = await kernel.gateway.generate(call("x" * 33, max_tokens=200))
        async with generation:
            await gated.run(4)
            await anext(generation)
            await gated.started()
        gated.commit()
        await quiet(kernel)
        record = kernel.gateway.record(generation.record.id, "default")
        assert (record.state, record.outcome) == ("done", "cancelled")
        assert (record.input_tokens, record.output_tokens) == (33, 4)
        gated.open()
        text, reasons, _ = await collect(kernel.gateway, call(max_tokens=3))
        assert (text, reasons) == ("AAA", ["length"])


async def test_leaving_before_the_first_step_is_never_lost() -> None:
    async with embedded(script(65), byte_text()) as kernel:
        for _ in range(20):
            async with await kernel.gateway.generate(call(max_tokens=200)) as generation:
                pass
        await quiet(kernel)
        assert generation.record.outcome == "cancelled"


async def test_an_abort_during_the_last_prefill_chunk_shows_no_token() -> None:
    gated = GatedExecutor(script(65))
    async with embedded(gated, byte_text()) as kernel:
        generation = await kernel.gateway.generate(call("x" * 130, max_tokens=10))
        deltas: list[Delta] = []
        async with generation:
            await gated.run(2)
            plan = await gated.started()
            assert plan.samples.tolist() == [True]
            generation.cancel()
            await anyio.wait_all_tasks_blocked()
            gated.commit()
            async for some in generation:
                deltas += some
        assert [delta.finish_reason for delta in deltas] == ["cancelled"]
        assert generation.record.output_tokens == 0
        await quiet(kernel)


async def test_a_stop_string_ends_the_text_before_it_and_the_sequence_soon() -> None:
    gated = GatedExecutor(script(*b"KLMNOPQRSTUVW"))
    async with embedded(gated, byte_text()) as kernel:
        generation = await kernel.gateway.generate(call(max_tokens=100, stop=("NOPQRST",)))
        text, steps = "", 0
        async with generation, create_task_group() as tasks:

            async def let_through() -> None:
                nonlocal steps
                while True:
                    await gated.started()
                    steps += 1
                    gated.commit()

            tasks.start_soon(let_through)
            async for deltas in generation:
                text += "".join(delta.text for delta in deltas)
            await quiet(kernel)
            tasks.cancel_scope.cancel()
        assert text == "KLM"
        assert steps <= 10 + 2
        assert generation.record.output_tokens == 10
        assert generation.record.outcome == "completed"
        gated.open()


@pytest.mark.parametrize(
    ("ids", "fields", "text", "reason", "tokens"),
    [
        ([*b"KLMNOPQRS", EOS], {"stop": ("NOPQRST",)}, "KLMNOPQRS", "stop", 10),
        ([*b"KLMNOPQRS"], {"stop": ("NOPQRST",), "max_tokens": 6}, "KLMNOP", "length", 6),
        ([*b"KLMNOPQRX", EOS], {"stop": ("NOPQRST",)}, "KLMNOPQRX", "stop", 10),
        ([72, 105, 32, 240, 159, 153, 130], {"max_tokens": 5}, "Hi \ufffd", "length", 5),
        ([72, 261, 105, EOS], {}, "Hi", "stop", 4),
        ([111, 107, 259, EOS], {}, "ok", "stop", 4),
        ([111, 107, 259, EOS], {"skip_special_tokens": False}, "ok<|im_end|>", "stop", 4),
    ],
)
async def test_what_was_held_back_comes_out_at_the_end(
    ids: list[int], fields: dict[str, Any], text: str, reason: str, tokens: int
) -> None:
    async with embedded(script(*ids), byte_text()) as kernel:
        got, reasons, generation = await collect(kernel.gateway, call(**fields))
    assert (got, reasons) == (text, [reason])
    assert generation.record.output_tokens == tokens


async def test_before_min_tokens_a_stop_string_does_not_count() -> None:
    asked = call(stop=("\n",), sampling=Sampling(min_tokens=5), max_tokens=8)
    async with embedded(script(*b"a\nb\nc\nd\n"), byte_text()) as kernel:
        text, reasons, generation = await collect(kernel.gateway, asked)
    assert (text, reasons, generation.record.output_tokens) == ("a\nb\nc", ["stop"], 6)


@attrs.define(eq=False)
class Failing:
    """Raises at one step; everything else is `inner`."""

    inner: Executor
    at_step: int

    def load(self, progress: Progress) -> Geometry:
        return self.inner.load(progress)

    def step(self, plan: Plan) -> StepDone:
        if plan.number == self.at_step:
            raise RuntimeError("secret path /srv/x")
        return self.inner.step(plan)

    def reset(self) -> None:
        self.inner.reset()

    def close(self) -> None:
        self.inner.close()


@pytest.mark.parametrize("at_step", [0, 3])
async def test_an_exception_of_a_step_ends_its_requests_and_the_next_is_served(
    at_step: int,
) -> None:
    async with embedded(Failing(ChainExecutor(GEOMETRY), at_step), byte_text()) as kernel:
        deltas: list[Delta] = []
        with pytest.raises(RequestFailed) as failed:
            async with await kernel.gateway.generate(call(max_tokens=10)) as generation:
                async for some in generation:
                    deltas += some
        assert failed.value.failure.code == "engine_error"
        assert "secret" not in failed.value.failure.message
        assert len(deltas) == at_step
        assert generation.record.outcome == "failed"
        await quiet(kernel)
        text, _, _ = await collect(kernel.gateway, call(max_tokens=10))
        assert text == letters(chain([120] * 3, 10))


async def test_one_failing_stream_leaves_the_requests_others_and_ends_it_failed() -> None:
    executor = script(*b"abcdefgh", failing=frozenset({(1, 2)}))
    async with embedded(executor, byte_text()) as kernel:
        texts = ["", "", ""]
        asked = Call(model=None, prompts=("x", "y", "z"), max_tokens=5)
        with pytest.raises(RequestFailed):
            async with await kernel.gateway.generate(asked) as generation:
                async for deltas in generation:
                    for delta in deltas:
                        texts[delta.index] += delta.text
        assert texts == ["abcde", "ab", "abcde"]
        assert generation.record.outcome == "failed"
        await quiet(kernel)


async def test_a_detokeniser_that_raises_fails_its_own_request_alone() -> None:
    text = byte_text()

    class Broken:
        stopped = False

        def push(self, token: int) -> str:
            raise ValueError("no such byte")

        def finish(self) -> str:
            return ""

    class Text:
        def __getattr__(self, name: str) -> Any:
            return getattr(text, name)

        def stream(self, *, stop: tuple[str, ...], **options: Any) -> Any:
            return Broken() if stop else text.stream(stop=stop, **options)

    tokens = [*b"abc", EOS]
    async with embedded(script(*tokens), Text()) as kernel:
        with pytest.raises(RequestFailed) as failed:
            await collect(kernel.gateway, call(stop=("never",)))
        assert failed.value.failure.code == "engine_error"
        assert (await collect(kernel.gateway, call()))[0] == "abc"
        await quiet(kernel)


async def test_the_server_can_end_every_request_with_a_reason() -> None:
    gated = GatedExecutor(script(65))
    async with embedded(gated, byte_text()) as kernel:
        deltas: list[Delta] = []
        async with await kernel.gateway.generate(call(max_tokens=100)) as generation:
            await gated.run(3)
            await gated.started()
            kernel.gateway.refuse("draining", "shutting down")
            kernel.gateway.fail_all(Failure("unavailable", "shutting down", None, "shutdown"))
            with pytest.raises(RequestFailed) as failed:
                async for some in generation:
                    deltas += some
            assert failed.value.failure.code == "shutdown"
        assert [delta.text for delta in deltas] == ["A", "A", "A"]
        gated.open()
        await quiet(kernel)
        assert generation.record.outcome == "failed"
        with pytest.raises(RequestFailed) as refused:
            await kernel.gateway.generate(call())
        assert refused.value.failure.kind == "unavailable"


async def test_cancelling_ends_every_stream_with_that_word_once() -> None:
    gated = GatedExecutor(script(65))
    async with embedded(gated, byte_text()) as kernel:
        asked = Call(model=None, prompts=("x", "y"), max_tokens=100)
        async with await kernel.gateway.generate(asked) as generation:
            await gated.run(2)
            await gated.started()
            for _ in range(3):
                kernel.gateway.cancel(generation.record.id, "default")
            gated.commit()
            reasons = []
            async for deltas in generation:
                reasons += [delta.finish_reason for delta in deltas if delta.finish_reason]
        assert reasons == ["cancelled", "cancelled"]
        kernel.gateway.cancel(generation.record.id, "default")
        gated.open()
        await quiet(kernel)


async def test_what_was_used_does_not_depend_on_when_the_client_reads() -> None:
    async with embedded(script(*b"abcdefgh"), byte_text()) as kernel:
        asked = call(stop=("b",), max_tokens=8)
        async with await kernel.gateway.generate(asked) as late:
            await anyio.wait_all_tasks_blocked()
            while kernel.planner and kernel.planner.sequences:  # it has ended when this one looks
                await anyio.lowlevel.checkpoint()
            texts = [delta.text async for deltas in late for delta in deltas]
        assert "".join(texts) == "a"
        _, _, prompt = await collect(kernel.gateway, asked)
        await quiet(kernel)
        assert late.record.output_tokens == prompt.record.output_tokens == 2


async def test_when_the_engine_ends_its_clients_are_told_and_newcomers_refused() -> None:
    class Dying(Failing):
        def reset(self) -> None:
            raise RuntimeError("nothing left to reset")

    site = Site(
        max_sequences=8,
        max_batched_tokens=64,
        max_waiting=8,
        block_size=16,
        model="tiny",
        vocabulary=260,
    )
    worker = Worker(
        site=site,
        executor=Dying(script(65), 2),
        make_scheduler=lambda site: fcfs({}, site),
        make_allocator=lambda site: paged({}, site),
    )
    await worker.load(lambda stage: None)
    gateway = Gateway("tiny")
    kernel = Kernel(worker=worker, gateway=gateway)

    async def serve() -> None:
        with pytest.raises(ExceptionGroup):
            await kernel.run(byte_text())

    async with create_task_group() as tasks:
        tasks.start_soon(serve)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(RequestFailed) as told:
            await collect(gateway, call(max_tokens=50))
    assert told.value.failure.code == "engine_error"
    with pytest.raises(RequestFailed) as refused:
        await gateway.generate(call())
    assert (refused.value.failure.kind, gateway.state) == ("unavailable", "failed")
