"""What a gateway asks its worker: each topic by whoever knows, and nothing is ever left open."""

import anyio
import anyio.lowlevel

from plancha.contracts import Geometry
from plancha.messages import Answer, Ask, WorkerTopic
from plancha.testing.embedded import embedded
from plancha.testing.executors import ChainExecutor
from plancha_text.byte_text import byte_text

GEOMETRY = Geometry(blocks=64, context_length=256, vocabulary=264, stop_ids=(257,))


async def test_a_topic_is_answered_by_whoever_the_worker_has_for_it() -> None:
    async def tell(ask: Ask) -> Answer:
        return Answer(ask.number, content=f"{ask.tenant} asks of {ask.request_id}".encode())

    async with embedded(ChainExecutor(GEOMETRY), byte_text()) as kernel:
        kernel.worker.answerers["trace"] = tell
        answer = await kernel.gateway.inquiries.ask_worker("trace", "req-1", "acme")
        assert answer.content == b"acme asks of req-1"


async def test_a_topic_that_nobody_knows_and_one_that_fails_have_empty_answers() -> None:
    async def fail(ask: Ask) -> Answer:
        raise RuntimeError("broken")

    async with embedded(ChainExecutor(GEOMETRY), byte_text()) as kernel:
        kernel.worker.answerers["usage"] = fail
        for answer in (
            await kernel.gateway.inquiries.ask_worker("usage", "req-1", "acme"),
            await kernel.gateway.inquiries.ask_worker("trace", "req-1", "acme"),
        ):
            assert (answer.record, answer.content) == (None, None)


async def test_a_slow_answer_holds_up_no_other() -> None:
    go_on = anyio.Event()

    async def slow(ask: Ask) -> Answer:
        await go_on.wait()
        return Answer(ask.number, content=b"slow")

    async def quick(ask: Ask) -> Answer:
        return Answer(ask.number, content=b"quick")

    async with embedded(ChainExecutor(GEOMETRY), byte_text()) as kernel:
        kernel.worker.answerers |= {"usage": slow, "trace": quick}
        contents: list[bytes | None] = []

        async def ask(topic: WorkerTopic) -> None:
            contents.append((await kernel.gateway.inquiries.ask_worker(topic)).content)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, "usage")
            await anyio.lowlevel.checkpoint()
            await ask("trace")
            go_on.set()
        assert contents == [b"quick", b"slow"]
