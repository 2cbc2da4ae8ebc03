"""The task that owns the executor's one thread: plans in, outcomes out."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

import structlog
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from plancha.contracts import Executor
from plancha.inbox import Inbox
from plancha.plans import Plan, StepDone, StepFailed

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

    def close(self, last: Callable[[], None]) -> None:
        """Call `last` after the call that runs, and nothing more; waits for neither."""
        self._pool.submit(last)
        self._pool.shutdown(wait=False)


async def execution(
    plans: MemoryObjectReceiveStream[Plan],
    inbox: MemoryObjectSendStream[Inbox],
    executor: Executor,
    thread: ExecutorThread,
) -> None:
    """Task: one plan after the other. A step that raises costs its sequences, not the server."""
    ended = time.perf_counter()
    async for plan in plans:
        began = time.perf_counter()
        try:
            outcome: Inbox = await thread.call(executor.step, plan)
        except Exception:
            log.exception("step_failed", step=plan.number, sequences=plan.slots.size)
            await thread.call(executor.reset)
            outcome = StepFailed(plan.number)
        _log_step(plan, outcome, waited_s=began - ended, took_s=time.perf_counter() - began)
        ended = time.perf_counter()
        await inbox.send(outcome)


def _log_step(plan: Plan, outcome: Inbox, *, waited_s: float, took_s: float) -> None:
    """`took_s` less the executor's own `seconds` is the way to its thread and back."""
    if isinstance(outcome, StepDone):
        log.debug(
            "step",
            number=plan.number,
            sequences=plan.slots.size,
            tokens=int(plan.counts.sum()),
            waited_s=round(waited_s, 6),
            took_s=round(took_s, 6),
            seconds=round(outcome.seconds, 6),
            timings={name: round(seconds, 6) for name, seconds in outcome.timings.items()},
        )
