"""What a gateway knows of a worker whose steps are all for another gateway."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import attrs
import numpy as np
from anyio import create_memory_object_stream
from anyio.streams.memory import MemoryObjectSendStream

from plancha.gateway import Gateway
from plancha.links.socket_gateways import SocketGateways
from plancha.links.socket_link import SocketLink, connect
from plancha.messages import Downstream, Frame, Logprobs, PromptLogprobs, Upstream
from plancha.testing.link_conformance import HANG_S, IDLE, frame, submit

BUSY = attrs.evolve(IDLE, running=1)


@asynccontextmanager
async def two_links(path: Path) -> AsyncIterator[tuple[MemoryObjectSendStream[Downstream], Any]]:
    """A worker that the test plays, and two gateways, each of which has asked for its stream."""
    upstream_in, upstream = create_memory_object_stream[Upstream](16)
    downstream_in, downstream = create_memory_object_stream[Downstream](16)
    with upstream_in, upstream, downstream_in, downstream:
        async with anyio.create_task_group() as tasks:
            hub = SocketGateways(path, model="tiny", context_length=256)
            tasks.start_soon(hub.run, upstream_in, downstream)
            await hub.listening.wait()
            async with connect(path, "00000001") as one, connect(path, "00000002") as other:
                for link in (one, other):
                    await link.send(submit(link.welcome.first_stream))
                    await upstream.receive()
                yield downstream_in, (one, other)
            tasks.cancel_scope.cancel()


def large_frame(link: SocketLink) -> Frame:
    """A megabyte about the gateway's own stream, and a step that is not the last."""
    stream = link.welcome.first_stream
    ids = np.zeros((60_000, 1), np.int32)
    numbers = np.zeros((60_000, 1), np.float32)
    prompt = PromptLogprobs(stream, 1, Logprobs(numbers[:, 0], ids, numbers))
    return attrs.evolve(frame(stream, 65), prompt_logprobs=(prompt,), load=BUSY)


async def test_one_that_lags_hears_all_the_same_that_nobody_runs_any_more(tmp_path: Path) -> None:
    async with two_links(tmp_path / "worker") as (worker, (one, other)):
        for _ in range(4):
            await worker.send(large_frame(one))  # more than its socket takes
        await worker.send(frame(other.welcome.first_stream, 65))  # the last step: all are idle
        loads = []
        with anyio.fail_after(HANG_S):
            async for message in one:
                assert isinstance(message, Frame)
                loads.append(message.load)
                if message.load == IDLE:
                    break
        assert loads == [BUSY] * 4 + [IDLE]


async def test_a_step_is_due_at_every_gateway_while_anybody_runs() -> None:
    gateway = Gateway("tiny", step_deadline_s=0.01)

    async def frames() -> AsyncIterator[Frame]:
        nobody = frame(0, 0)
        nothing = attrs.evolve(nobody, streams=nobody.streams[:0], tokens=nobody.tokens[:0])
        yield attrs.evolve(nothing, load=IDLE)
        yield attrs.evolve(nothing, load=attrs.evolve(BUSY, steps=1))
        while not gateway.stalled:  # noqa: ASYNC110
            await anyio.sleep(0.001)
        yield attrs.evolve(nothing, load=attrs.evolve(IDLE, steps=2))
        while gateway.stalled:  # noqa: ASYNC110
            await anyio.sleep(0.001)

    with anyio.fail_after(HANG_S):
        await gateway.fanout(frames())
    assert not gateway.stalled
