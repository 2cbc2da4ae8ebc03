"""Steps one at a time: a test sees a step started, does something, and lets it be committed."""

import queue
import threading
from collections.abc import Callable

import anyio.to_thread
import attrs

from plancha.contracts import Executor, Geometry
from plancha.messages import Plan, StepDone

HANG_S = 60.0
"""A step that nobody commits for so long is a broken test, not a slow one."""


@attrs.define(eq=False)
class GatedExecutor:
    """Holds every step of `inner` between its start and its commit until `commit` is called."""

    inner: Executor
    _started: "queue.Queue[Plan]" = attrs.field(factory=queue.Queue, init=False)
    _permits: threading.Semaphore = attrs.field(factory=lambda: threading.Semaphore(0), init=False)
    _open: threading.Event = attrs.field(factory=threading.Event, init=False)

    async def started(self) -> Plan:
        """The next step that has begun and is held."""
        return await anyio.to_thread.run_sync(lambda: self._started.get(timeout=HANG_S))

    def commit(self, steps: int = 1) -> None:
        """Let the held step finish, and as many more as said."""
        self._permits.release(steps)

    async def run(self, steps: int) -> list[Plan]:
        """Let that many steps start and finish; their plans."""
        plans = []
        for _ in range(steps):
            plans.append(await self.started())
            self.commit()
        return plans

    def open(self) -> None:
        """Hold nothing any more."""
        self._open.set()
        self._permits.release()

    def load(self, progress: Callable[[str], None]) -> Geometry:
        """As `inner`."""
        return self.inner.load(progress)

    def step(self, plan: Plan) -> StepDone:
        """Say that the step began, wait for its commit, then compute it."""
        self._started.put(plan)
        if not self._open.is_set():
            assert self._permits.acquire(timeout=HANG_S), f"nobody committed step {plan.number}"
        return self.inner.step(plan)

    def reset(self) -> None:
        """As `inner`."""
        self.inner.reset()

    def close(self) -> None:
        """As `inner`."""
        self.inner.close()
