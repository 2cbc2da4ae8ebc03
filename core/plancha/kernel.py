"""The wiring diagram: every channel, and who sends and receives on it.

    gateway ──upstream──▶ admission ──inbox──▶ scheduling ──plans──▶ execution
                              │                  │   ▲                   │
                              │                  │   └───────inbox───────┘
       outboxes ◀── fanout ◀──┴───downstream─────┘

Every channel is bounded and has one receiver. What goes through one is a request, a round of
controls or a step; never a token.
"""

import time
from collections.abc import Callable

import attrs
from anyio import create_memory_object_stream, create_task_group

from plancha.admission import Admission, admission
from plancha.contracts import Allocator, Clock, Executor, Scheduler, Site, Text
from plancha.execution import ExecutorThread, execution
from plancha.failure import engine_error
from plancha.gateway import Gateway
from plancha.inbox import Inbox
from plancha.messages import Downstream, Plan, Upstream
from plancha.planner import Planner
from plancha.scheduling import scheduling

REQUESTS_ON_THE_WAY = 256
FRAMES_ON_THE_WAY = 64
PLANS_ON_THE_WAY = 1


@attrs.define(kw_only=True, eq=False)
class Kernel:
    """One worker and one gateway in one process. `load`, then `run` until cancelled."""

    site: Site
    executor: Executor
    make_scheduler: Callable[[Site], Scheduler]
    make_allocator: Callable[[Site], Allocator]
    gateway: Gateway
    clock: Clock = time.monotonic
    planner: Planner | None = attrs.field(default=None, init=False)
    _thread: ExecutorThread = attrs.field(factory=ExecutorThread, init=False)
    _admission: Admission | None = attrs.field(default=None, init=False)

    async def load(self, progress: Callable[[str], None]) -> Site:
        """Load the model, then make scheduler and allocator for what it turned out to be.

        Raises `LoadError` or `OptionsError` with a message for the operator.
        """
        geometry = await self._thread.call(self.executor.load, progress)
        self.site = attrs.evolve(self.site, geometry=geometry)
        allocator = self.make_allocator(self.site)
        self.planner = Planner(self.site, self.make_scheduler(self.site), allocator)
        self._admission = Admission(
            site=self.site,
            allocator=allocator,
            waiting=self.planner.waiting_sequences,
        )
        return self.site

    async def run(self, text: Text) -> None:
        """Serve until cancelled; the gateway is ready as soon as this has started.

        Raises `RuntimeError` when the model is not loaded, and whatever ends a task.
        """
        if self.planner is None or self._admission is None:
            raise RuntimeError("load() comes before run()")
        upstream_in, upstream = create_memory_object_stream[Upstream](REQUESTS_ON_THE_WAY)
        inbox_in, inbox = create_memory_object_stream[Inbox](REQUESTS_ON_THE_WAY)
        plans_in, plans = create_memory_object_stream[Plan](PLANS_ON_THE_WAY)
        downstream_in, downstream = create_memory_object_stream[Downstream](FRAMES_ON_THE_WAY)
        try:
            async with create_task_group() as tasks:
                start = tasks.start_soon
                start(admission, upstream, inbox_in, downstream_in, self._admission, self.clock)
                start(scheduling, inbox, plans_in, downstream_in, self.planner, self.clock)
                start(execution, plans, inbox_in, self.executor, self._thread)
                start(self.gateway.fanout, downstream)
                start(self.gateway.control)
                self.gateway.open(text, upstream_in, self.site.loaded().context_length)
        except Exception:
            self.gateway.refuse("failed", "the engine stopped")
            self.gateway.fail_all(engine_error())
            raise
        finally:
            for channel in (upstream_in, inbox_in, plans_in, downstream_in):
                channel.close()
            for end in (upstream, inbox, plans, downstream):
                end.close()
            self._thread.close(self.executor.close)
