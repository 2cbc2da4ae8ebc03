"""Steps one at a time: a test sees a step started, does something, and lets it be committed."""

import asyncio
import threading
from collections import deque

import attrs

from plancha.contracts import Executor, Geometry, Progress
from plancha.plans import Plan, StepDone

HANG_S = 60.0
"""A step that nobody commits for so long is a broken test, not a slow one."""


@attrs.define(eq=False)
class GatedExecutor:
    """Holds every step of `inner` between its start and its commit until `commit` is called."""

    inner: Executor
    _held: deque[Plan] = attrs.field(factory=deque, init=False)
    _news: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)
    _loop: asyncio.AbstractEventLoop | None = attrs.field(default=None, init=False)
    _permits: threading.Semaphore = attrs.field(factory=lambda: threading.Semaphore(0), init=False)
    _open: threading.Event = attrs.field(factory=threading.Event, init=False)

    async def started(self) -> Plan:
        """The next step that has begun and is held."""
        self._loop = asyncio.get_running_loop()
        while not self._held:
            self._news.clear()
            await self._news.wait()
        return self._held.popleft()

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

    def load(self, progress: Progress) -> Geometry:
        """As `inner`."""
        return self.inner.load(progress)

    def step(self, plan: Plan) -> StepDone:
        """Say that the step began, wait for its commit, then compute it."""
        self._held.append(plan)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._news.set)
        if not self._open.is_set():
            assert self._permits.acquire(timeout=HANG_S), f"nobody committed step {plan.number}"
        return self.inner.step(plan)

    def reset(self) -> None:
        """As `inner`."""
        self.inner.reset()

    def close(self) -> None:
        """As `inner`."""
        self.inner.close()
