"""What every link between a gateway and its worker must get right, whatever lies between.

@pytest.mark.parametrize("promise", LINK_PROMISES)
async def test_mine_keeps_its_promises(promise: Promise) -> None:
    await promise(my_ends)
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import anyio
import attrs
import numpy as np
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from plancha.failure import Failure
from plancha.links.link import Link, LinkLost
from plancha.messages import (
    Cancel,
    Controls,
    Downstream,
    Frame,
    InferenceRequest,
    Int32s,
    Load,
    Rejected,
    Submit,
    Upstream,
)
from plancha.sampling import Sampling

MESSAGES = 300
HANG_S = 30.0
IDLE = Load(total_blocks=64, free_blocks=64, running=0, waiting=0)


@attrs.frozen(kw_only=True, eq=False)
class Ends:
    """Both ends of one link that works, and ways to break it."""

    link: Link  # the gateway's end
    upstream: MemoryObjectReceiveStream[Upstream]  # the worker's
    downstream: MemoryObjectSendStream[Downstream]
    first_stream: int
    lose_gateway: Callable[[], Awaitable[None]]  # as if its process had died
    lose_worker: Callable[[], Awaitable[None]]


MakeEnds = Callable[[], AbstractAsyncContextManager[Ends]]
Promise = Callable[[MakeEnds], Awaitable[None]]


def submit(stream: int, prompt: Int32s | None = None) -> Submit:
    """A request for one stream."""
    ids = np.arange(1, 4, dtype=np.int32) if prompt is None else prompt
    request = InferenceRequest(
        id=f"req-{stream}",
        tenant="default",
        prompts=(ids,),
        sampling=Sampling(),
        max_tokens=8,
    )
    return Submit(request, (stream,))


def frame(stream: int, token: int) -> Frame:
    """A step in which one stream has one token."""
    streams, tokens = np.array([stream], np.int64), np.array([token], np.int32)
    return Frame(streams, tokens, (), (), IDLE)


async def what_gateways_send_arrives_in_order(make: MakeEnds) -> None:
    """Every request and every control, none twice."""
    async with make() as ends, anyio.create_task_group() as tasks:
        first = ends.first_stream

        async def send() -> None:
            for number in range(first, first + MESSAGES):
                await ends.link.send(submit(number, np.full(number - first + 1, 7, np.int32)))
                await ends.link.send(Controls((Cancel(number),)))

        tasks.start_soon(send)
        with anyio.fail_after(HANG_S):
            for number in range(first, first + MESSAGES):
                request, controls = await ends.upstream.receive(), await ends.upstream.receive()
                assert isinstance(request, Submit) and request.streams == (number,)
                (prompt,) = request.request.prompts
                assert prompt.tolist() == [7] * (number - first + 1)
                assert controls == Controls((Cancel(number),))


async def what_the_worker_sends_arrives_in_order(make: MakeEnds) -> None:
    """Every frame and every refusal, however late the gateway reads."""
    async with make() as ends, anyio.create_task_group() as tasks:
        first = ends.first_stream
        refusal = Rejected((first,), Failure("busy", "later", None, "queue_full", 3))
        await _introduce(ends)

        async def send() -> None:
            for token in range(MESSAGES):
                await ends.downstream.send(frame(first, token))
            await ends.downstream.send(refusal)

        tasks.start_soon(send)
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(HANG_S):
            messages = aiter(ends.link)
            for token in range(MESSAGES):
                message = await anext(messages)
                assert isinstance(message, Frame), message
                assert (message.streams.tolist(), message.tokens.tolist()) == ([first], [token])
                assert message.load == IDLE
            assert await anext(messages) == refusal


async def a_request_that_is_given_up_while_sent_is_sent_whole_or_not(make: MakeEnds) -> None:
    """And what comes after it arrives either way."""
    async with make() as ends:
        first = ends.first_stream
        for number in range(first, first + 20):
            with anyio.CancelScope() as scope:
                scope.cancel()
                await ends.link.send(submit(number, np.zeros(100_000, np.int32)))
        await ends.link.send(Controls((Cancel(first),)))
        with anyio.fail_after(HANG_S):
            while isinstance(message := await ends.upstream.receive(), Submit):
                assert message.request.prompts[0].size == 100_000
            assert message == Controls((Cancel(first),))


async def a_lost_worker_is_noticed_at_once(make: MakeEnds) -> None:
    """What it had sent still comes, then the iteration ends, and nothing can be sent."""
    async with make() as ends:
        await _introduce(ends)
        await ends.downstream.send(frame(ends.first_stream, 65))
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(HANG_S):
            messages = aiter(ends.link)
            assert isinstance(await anext(messages), Frame)
            await ends.lose_worker()
            async for message in messages:
                raise AssertionError(f"{message} from nobody")
            try:
                await ends.link.send(submit(ends.first_stream + 1))
            except LinkLost:
                return
        raise AssertionError("something was sent to nobody")


async def a_lost_gateway_is_noticed_at_once(make: MakeEnds) -> None:
    """The worker hears that each of its streams is over, or that nobody will ever say anything."""
    async with make() as ends:
        await ends.link.send(submit(ends.first_stream))
        await ends.link.send(submit(ends.first_stream + 1))
        with anyio.fail_after(HANG_S):
            for _ in range(2):
                assert isinstance(await ends.upstream.receive(), Submit)
            await ends.lose_gateway()
            cancelled: set[int] = set()
            try:
                while len(cancelled) < 2:
                    message = await ends.upstream.receive()
                    assert isinstance(message, Controls)
                    assert all(isinstance(each, Cancel) for each in message.controls)
                    cancelled |= {each.stream for each in message.controls}
            except anyio.EndOfStream:
                return
        assert cancelled == {ends.first_stream, ends.first_stream + 1}


async def _introduce(ends: Ends) -> None:
    """The worker speaks of no stream that it has not heard of."""
    await ends.link.send(submit(ends.first_stream))
    with anyio.fail_after(HANG_S):
        assert isinstance(await ends.upstream.receive(), Submit)


LINK_PROMISES: tuple[Promise, ...] = (
    what_gateways_send_arrives_in_order,
    what_the_worker_sends_arrives_in_order,
    a_request_that_is_given_up_while_sent_is_sent_whole_or_not,
    a_lost_worker_is_noticed_at_once,
    a_lost_gateway_is_noticed_at_once,
)
