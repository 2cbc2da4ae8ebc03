"""A request's deadline in a gateway whose worker says nothing; here the test is the worker."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import attrs
import numpy as np
import pytest
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from plancha.calls.call import Call
from plancha.failure import RequestFailed
from plancha.gateway import Gateway
from plancha.links.memory_link import MemoryLink
from plancha.messages import (
    Bill,
    Cancel,
    Controls,
    Downstream,
    Finished,
    Frame,
    Joined,
    Load,
    Settled,
    Submit,
    Upstream,
)
from plancha.record import Outcome
from plancha.streams import overdue
from plancha.streams.generation import Generation
from plancha.streams.overdue import GRACE_LOOKS, GRACE_S, Overdue
from plancha_text.byte_text import byte_text

HANG_S = 30.0
IDLE = Load(total_blocks=1, free_blocks=1, running=0, waiting=0)


@attrs.define(eq=False)
class Worker:
    gateway: Gateway
    upstream: MemoryObjectReceiveStream[Upstream]
    downstream: MemoryObjectSendStream[Downstream]

    async def hears(self) -> Upstream:
        with anyio.fail_after(HANG_S):
            return await self.upstream.receive()

    async def says(self, stream: int, *finished: Finished) -> None:
        """One token, and perhaps the end."""
        columns = np.array([stream], np.int64), np.array([65], np.int32)
        await self.downstream.send(Frame(*columns, (Joined(stream, 0),), finished, IDLE))
        for each in finished:
            outcome: Outcome = "completed" if each.reason == "length" else "failed"
            await self.downstream.send(Settled((bill(each, outcome),)))

    async def cancelled(self) -> int:
        """Which stream, and nothing else is told."""
        controls = await self.hears()
        assert isinstance(controls, Controls)
        (control,) = controls.controls
        assert isinstance(control, Cancel)
        return control.stream


def bill(finished: Finished, outcome: Outcome) -> Bill:
    return Bill(
        streams=(finished.stream,),
        input_tokens=finished.prompt_tokens,
        cached_tokens=0,
        output_tokens=finished.output_tokens,
        outcome=outcome,
        finished_s=0.0,
    )


@asynccontextmanager
async def silent_worker(room: int = 16) -> AsyncIterator[Worker]:
    """It takes so many messages before a sender has to wait."""
    upstream_in, upstream = anyio.create_memory_object_stream[Upstream](room)
    downstream, downstream_out = anyio.create_memory_object_stream[Downstream](16)
    gateway = Gateway("tiny")
    with upstream_in, upstream, downstream, downstream_out:
        async with anyio.create_task_group() as tasks:
            gateway.open(byte_text(), MemoryLink(upstream_in, downstream_out), 256)
            tasks.start_soon(gateway.fanout, downstream_out)
            tasks.start_soon(gateway.control)
            yield Worker(gateway, upstream, downstream)
            tasks.cancel_scope.cancel()


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overdue, "INTERVAL_S", 0.01)
    monkeypatch.setattr(overdue, "GRACE_S", 0.02)


def call(timeout_s: float | None) -> Call:
    return Call(model=None, prompts=("x",), max_tokens=9, timeout_s=timeout_s)


async def taken(generation: Generation) -> tuple[str, str | None]:
    """The text that came, and the code of how it broke off."""
    text = ""
    try:
        async for deltas in generation:
            text += "".join(delta.text for delta in deltas)
    except RequestFailed as failed:
        assert failed.failure.kind == "timeout"
        return text, failed.failure.code
    return text, None


@pytest.mark.usefixtures("short")
async def test_a_request_that_its_worker_forgets_ends_at_its_deadline_and_is_cancelled() -> None:
    async with silent_worker() as worker:
        with anyio.fail_after(HANG_S):
            async with await worker.gateway.generate(call(timeout_s=0.1)) as generation:
                submit = await worker.hears()
                assert isinstance(submit, Submit)
                (stream,) = submit.streams
                await worker.says(stream)
                assert await taken(generation) == ("A", "request_timeout")
        assert await worker.cancelled() == stream


@pytest.mark.usefixtures("short")
async def test_what_the_worker_says_after_that_only_closes_the_record() -> None:
    async with silent_worker() as worker:
        async with await worker.gateway.generate(call(timeout_s=0.01)) as generation:
            submit = await worker.hears()
            assert isinstance(submit, Submit)
            (stream,) = submit.streams
            assert await taken(generation) == ("", "request_timeout")
        assert generation.record.state != "done"  # only the worker knows what it cost

        await worker.says(stream, Finished(stream, "cancelled", 1, 1))
        await anyio.wait_all_tasks_blocked()

        record = generation.record
        assert (record.state, record.outcome, record.output_tokens) == ("done", "failed", 1)
        assert worker.gateway.running == 0


@pytest.mark.usefixtures("short")
async def test_a_request_that_its_worker_does_not_even_take_ends_at_its_deadline_too() -> None:
    async with silent_worker(room=1) as worker:
        await worker.gateway.generate(call(timeout_s=None))
        with anyio.fail_after(HANG_S), pytest.raises(RequestFailed) as refused:
            await worker.gateway.generate(call(timeout_s=0.01))
        assert refused.value.failure.code == "request_timeout"
        assert worker.gateway.running == 1


async def looked_at(worker: Worker, timeout_s: float | None) -> tuple[Overdue, Generation, int]:
    """A generation of the gateway, watched by the test's own clock from 1000 on."""
    generation = await worker.gateway.generate(call(None))
    submit = await worker.hears()
    assert isinstance(submit, Submit)
    watching = Overdue(worker.gateway.outboxes.running)
    watching.watch(generation, timeout_s, 1000.0)
    return watching, generation, submit.streams[0]


async def test_the_worker_has_a_grace_to_end_it_itself() -> None:
    async with silent_worker() as worker:
        watching, generation, stream = await looked_at(worker, 5.0)
        watching.look(1004.9)
        for look in range(GRACE_LOOKS):
            watching.look(1005.0 + look * overdue.INTERVAL_S)
        await worker.says(stream, Finished(stream, "length", 1, 1))
        await anyio.wait_all_tasks_blocked()
        watching.look(1005.0 + GRACE_S)
        assert await taken(generation) == ("A", None)
        assert generation.record.outcome == "completed"


async def test_a_gateway_that_stood_still_past_a_deadline_hears_its_worker_first() -> None:
    async with silent_worker() as worker:
        watching, generation, stream = await looked_at(worker, 5.0)
        watching.look(5000.0)
        await worker.says(stream, Finished(stream, "length", 1, 1))
        await anyio.wait_all_tasks_blocked()
        for look in range(10):
            watching.look(5001.0 + look)
        assert await taken(generation) == ("A", None)


async def test_who_set_no_deadline_waits_for_as_long_as_it_takes() -> None:
    async with silent_worker() as worker:
        watching, generation, _ = await looked_at(worker, None)
        for look in range(10):
            watching.look(1e9 + look)
        assert not generation.more and not generation.ended
