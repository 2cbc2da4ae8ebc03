"""The wiring diagram: every channel, and who sends and receives on it.

    gateway ──upstream──▶ admission ──inbox──▶ scheduling ──plans──▶ execution
                            │   │                │   ▲                   │
                     answering  │                │   └───────inbox───────┘
                            │   │                │
       outboxes ◀── fanout ◀┴───┴──downstream────┤
                                    │            ▼
                                    └── accounting ──▶ ledger

Every channel is bounded and has one receiver. What goes through one is a request, a round of
controls or a step; never a token. `upstream` and `downstream` are all that the two halves have in
common: a `Kernel` holds both halves, and where they are processes of their own a socket is between
(`socket_gateways`, `socket_link`).
"""

import time
from collections.abc import Awaitable, Callable

import attrs
from anyio import create_memory_object_stream, create_task_group
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from plancha.accounting.accounting import NoLedger, accounting, write_the_rest
from plancha.accounting.accounts import Accounts
from plancha.accounting.journal import Journal
from plancha.accounting.usage import Usage
from plancha.admission import Admission, admission
from plancha.answering import Answerer, answering
from plancha.contracts import Allocator, Clock, Executor, Progress, Scheduler, Site, Text
from plancha.execution import ExecutorThread, execution
from plancha.failure import engine_error
from plancha.gateway import Gateway
from plancha.inbox import Inbox
from plancha.ledger import Ledger
from plancha.links.link import Link
from plancha.links.memory_link import MemoryLink
from plancha.live.live import Live
from plancha.messages import (
    Ask,
    Downstream,
    Upstream,
    WorkerTopic,
)
from plancha.metrics.figures import Figures
from plancha.metrics.ledger_collector import LedgerCollector
from plancha.metrics.worker_collector import WorkerCollector
from plancha.planning.planner import Planner
from plancha.plans import Plan
from plancha.scheduling import scheduling
from plancha.traces.views import Tracing

REQUESTS_ON_THE_WAY = 256
FRAMES_ON_THE_WAY = 64
PLANS_ON_THE_WAY = 1


Connect = Callable[
    [MemoryObjectSendStream[Upstream], MemoryObjectReceiveStream[Downstream]], Awaitable[None]
]
"""The task at the gateways' end of a worker's two channels."""


@attrs.define(kw_only=True, eq=False)
class Worker:
    """The half that computes. `load`, then `run` until cancelled.

    The `ledger` is open, and whoever opened it closes it after `run`.
    """

    site: Site
    executor: Executor
    make_scheduler: Callable[[Site], Scheduler]
    make_allocator: Callable[[Site], Allocator]
    clock: Clock = time.monotonic
    ledger: Ledger = attrs.field(factory=NoLedger)
    journal: Journal = attrs.field(factory=Journal)
    planner: Planner | None = attrs.field(default=None, init=False)
    answerers: dict[WorkerTopic, Answerer] = attrs.field(factory=dict, init=False)
    figures: Figures = attrs.field(factory=Figures, init=False)
    _thread: ExecutorThread = attrs.field(factory=ExecutorThread, init=False)
    _admission: Admission | None = attrs.field(default=None, init=False)
    _accounts: Accounts | None = attrs.field(default=None, init=False)

    async def load(self, progress: Progress) -> Site:
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
            overload=self.planner.overload,
            meters=self.planner.meters,
            journal=self.journal,
        )
        self._accounts = Accounts(self.journal, self.planner.batch)
        self.figures.on_loop.register(WorkerCollector(self.planner, self.site, self.clock))
        self.figures.on_loop.register(LedgerCollector(self.journal))
        self.answerers["metrics"] = self.figures.answer
        self.answerers["usage"] = Usage(self.ledger).answer
        self.answerers["trace"] = Tracing(self.planner, self.clock).answer
        live = Live(planner=self.planner, site=self.site, clock=self.clock)
        self.answerers["live"] = live.answer
        return self.site

    async def run(self, connect: Connect) -> None:
        """Serve whoever `connect` brings, until cancelled.

        Raises `RuntimeError` when the model is not loaded, and whatever ends a task.
        """
        planner, accounts, policy = self.planner, self._accounts, self._admission
        if planner is None or accounts is None or policy is None:
            raise RuntimeError("load() comes before run()")
        upstream_in, upstream = create_memory_object_stream[Upstream](REQUESTS_ON_THE_WAY)
        inbox_in, inbox = create_memory_object_stream[Inbox](REQUESTS_ON_THE_WAY)
        plans_in, plans = create_memory_object_stream[Plan](PLANS_ON_THE_WAY)
        asks_in, asks = create_memory_object_stream[Ask](REQUESTS_ON_THE_WAY)
        downstream_in, downstream = create_memory_object_stream[Downstream](FRAMES_ON_THE_WAY)
        try:
            async with create_task_group() as tasks:
                start, clock = tasks.start_soon, self.clock
                start(admission, upstream, inbox_in, downstream_in, asks_in, policy, clock)
                start(answering, asks, downstream_in, self.answerers)
                start(scheduling, inbox, plans_in, downstream_in, planner, accounts, clock)
                start(accounting, self.journal, self.ledger, inbox_in, downstream_in, clock)
                start(execution, plans, inbox_in, self.executor, self._thread)
                await connect(upstream_in, downstream)
        finally:
            accounts.abandon("failed")
            await write_the_rest(self.journal, self.ledger, self.clock)
            for channel in (upstream_in, inbox_in, plans_in, asks_in, downstream_in):
                channel.close()
            for end in (upstream, inbox, plans, asks, downstream):
                end.close()
            self._thread.close(self.executor.close)


@attrs.frozen(kw_only=True, eq=False)
class Kernel:
    """One worker and one gateway in one process. `load` the worker, then `run` until cancelled."""

    worker: Worker
    gateway: Gateway

    @property
    def planner(self) -> Planner | None:
        """The worker's; None before it has loaded."""
        return self.worker.planner

    async def run(self, text: Text) -> None:
        """Serve until cancelled; the gateway is ready as soon as this has started.

        Raises as `Worker.run` does.
        """

        async def connect(
            upstream: MemoryObjectSendStream[Upstream],
            downstream: MemoryObjectReceiveStream[Downstream],
        ) -> None:
            link = MemoryLink(upstream, downstream)
            self.gateway.open(text, link, self.worker.site.loaded().context_length)
            await attend(self.gateway, link)

        try:
            await self.worker.run(connect)
        except Exception:
            self.gateway.refuse("failed", "the engine stopped")
            self.gateway.fail_all(engine_error())
            raise


async def attend(gateway: Gateway, link: Link) -> None:
    """Both of a gateway's tasks at its end of a link, until the worker is gone."""
    async with create_task_group() as tasks:
        tasks.start_soon(gateway.control)
        await gateway.fanout(link)
        tasks.cancel_scope.cancel()
