"""The task that owns the executor's one thread: plans in, outcomes out."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

import structlog
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from plancha.contracts import Executor
from plancha.inbox import Inbox
from plancha.messages import Plan, StepFailed

log = structlog.get_logger()

P = ParamSpec("P")
T = TypeVar("T")


class ExecutorThread:
    """Runs every call on one thread, since CUDA contexts and OpenMP pools belong to a thread."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="executor")

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`function`'s result, computed there. A cancelled caller leaves a running call running."""
        return await asyncio.wrap_future(self._pool.submit(function, *args, **kwargs))

    def close(self) -> None:
        """Let the call that runs be the last, without waiting for it."""
        self._pool.shutdown(wait=False, cancel_futures=True)


async def execution(
    plans: MemoryObjectReceiveStream[Plan],
    inbox: MemoryObjectSendStream[Inbox],
    executor: Executor,
    thread: ExecutorThread,
) -> None:
    """Task: one plan after the other. A step that raises costs its sequences, not the server."""
    async for plan in plans:
        try:
            outcome: Inbox = await thread.call(executor.step, plan)
        except Exception:
            log.exception("step_failed", step=plan.number, sequences=plan.slots.size)
            await thread.call(executor.reset)
            outcome = StepFailed(plan.number)
        await inbox.send(outcome)
