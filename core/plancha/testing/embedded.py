"""A whole kernel in the test's own event loop, with any executor, scheduler and allocator."""

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import anyio.lowlevel
import attrs
from anyio import create_task_group

from plancha.accounting.accounting import NoLedger
from plancha.accounting.journal import PATIENCE_S, Journal
from plancha.contracts import Allocator, Clock, Executor, Scheduler, Site, Tenant, Text
from plancha.gateway import Gateway
from plancha.kernel import Kernel, Worker
from plancha.ledger import Ledger
from plancha.plugins import find


@attrs.frozen(kw_only=True)
class Limits:
    """The batch of the behaviour cases: small enough that every limit is met."""

    max_sequences: int = 8
    max_batched_tokens: int = 64
    max_waiting: int = 64
    block_size: int = 16
    tenants: Mapping[str, Tenant] = attrs.field(factory=dict)
    queue_timeout_s: float = 0.0
    ttft_targets_s: Mapping[int, float] = attrs.field(factory=dict)


@asynccontextmanager
async def embedded(
    executor: Executor,
    text: Text,
    *,
    limits: Limits | None = None,
    scheduler: Callable[[Site], Scheduler] | None = None,
    allocator: Callable[[Site], Allocator] | None = None,
    model: str = "tiny",
    clock: Clock = time.monotonic,
    step_deadline_s: float = 0.0,
    ledger: Ledger | None = None,
    patience_s: float = PATIENCE_S,
) -> AsyncIterator[Kernel]:
    """A loaded, running kernel; `kernel.gateway` takes calls. Ends when the block is left.

    Scheduler and allocator default to the installed plugins `fcfs` and `paged`. `patience_s` is for
    a ledger that does not write.
    """
    limits = limits or Limits()
    worker = Worker(
        site=Site(
            max_sequences=limits.max_sequences,
            max_batched_tokens=limits.max_batched_tokens,
            max_waiting=limits.max_waiting,
            block_size=limits.block_size,
            model=model,
            vocabulary=text.vocabulary,
            tenants=limits.tenants,
            queue_timeout_s=limits.queue_timeout_s,
            ttft_targets_s=limits.ttft_targets_s,
        ),
        executor=executor,
        make_scheduler=scheduler or (lambda site: find("plancha.schedulers", "fcfs")({}, site)),
        make_allocator=allocator or (lambda site: find("plancha.allocators", "paged")({}, site)),
        clock=clock,
        ledger=ledger or NoLedger(),
        journal=Journal(patience_s),
    )
    await worker.load(lambda stage: None)
    kernel = Kernel(worker=worker, gateway=Gateway(model, step_deadline_s=step_deadline_s))
    async with create_task_group() as tasks:
        tasks.start_soon(kernel.run, text)
        while kernel.gateway.state == "loading":
            await anyio.lowlevel.checkpoint()
        try:
            yield kernel
        finally:
            tasks.cancel_scope.cancel()
