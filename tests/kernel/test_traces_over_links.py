"""A request's trace through any gateway of its worker, over a real socket."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

from plancha.calls.call import Call
from plancha.contracts import Geometry, Site
from plancha.failure import RequestFailed
from plancha.gateway import Gateway
from plancha.kernel import Worker, attend
from plancha.links.socket_gateways import SocketGateways
from plancha.links.socket_link import connect
from plancha.testing.executors import ScriptExecutor
from plancha.testing.gate import GatedExecutor
from plancha_allocators.paged import paged
from plancha_schedulers.fcfs import fcfs
from plancha_text.byte_text import byte_text

HANG_S = 30.0
GEOMETRY = Geometry(blocks=64, context_length=256, vocabulary=264, stop_ids=(257,))


def worker_of(executor: GatedExecutor) -> Worker:
    site = Site(
        max_sequences=1,
        max_batched_tokens=64,
        max_waiting=64,
        block_size=16,
        model="tiny",
        vocabulary=260,
    )
    return Worker(
        site=site,
        executor=executor,
        make_scheduler=lambda site: fcfs({}, site),
        make_allocator=lambda site: paged({}, site),
    )


@asynccontextmanager
async def two_gateways(path: Path, executor: GatedExecutor) -> AsyncIterator[list[Gateway]]:
    worker = worker_of(executor)
    await worker.load(lambda stage: None)
    hub = SocketGateways(path, model="tiny", context_length=256)
    async with anyio.create_task_group() as tasks, AsyncExitStack() as links:
        tasks.start_soon(worker.run, hub.run)
        await hub.listening.wait()
        gateways = [Gateway("tiny"), Gateway("tiny")]
        for gateway in gateways:
            link = await links.enter_async_context(connect(path, gateway.name))
            gateway.open(
                byte_text(), link, 256, first_stream=link.welcome.first_stream, shared=True
            )
            tasks.start_soon(attend, gateway, link)
        yield gateways
        executor.open()
        tasks.cancel_scope.cancel()


async def traced(gateway: Gateway, request_id: str, tenant: str, *, operator: bool = False) -> Any:
    answer = await gateway.inquiries.ask_worker("trace", request_id, tenant, any_tenant=operator)
    return None if answer.content is None else orjson.loads(answer.content)


async def reason(gateway: Gateway, request_id: str) -> str | None:
    """Why acme's request waits; None: it has not come to the worker."""
    told = await traced(gateway, request_id, "acme")
    return None if told is None else str(told["sequences"][0]["reason"])


async def test_every_gateway_tells_its_owner_and_operators_and_nobody_else(tmp_path: Path) -> None:
    executor = GatedExecutor(ScriptExecutor(lambda prompt: [65], GEOMETRY))
    call = Call(model=None, prompts=("x",), max_tokens=200, tenant="acme")
    with anyio.fail_after(HANG_S):
        async with two_gateways(tmp_path / "worker", executor) as (one, other):
            running = await one.generate(call)
            await executor.started()
            waiting = await one.generate(call)
            for gateway in (one, other):
                while await reason(gateway, waiting.record.id) != "slots":
                    executor.commit()
                    await executor.started()
                assert await traced(gateway, waiting.record.id, "other") is None
                assert await traced(gateway, "req-0", "acme") is None
                told = await traced(gateway, running.record.id, "other", operator=True)
                assert (told["tenant"], told["sequences"][0]["state"]) == ("acme", "running")


async def test_without_a_worker_there_is_no_answer() -> None:
    with pytest.raises(RequestFailed) as failed:
        await Gateway("tiny").inquiries.ask_worker("trace", "req-0", "acme")
    assert failed.value.failure.kind == "unavailable"
