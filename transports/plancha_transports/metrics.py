"""`GET /metrics`: figures in Prometheus' text format, of all gateways and of their worker."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import get_args

import anyio
import attrs
from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from plancha.failure import Failure, RequestFailed
from plancha.gateway import Gateway
from plancha.metrics.families import PREFIX, counters, gauge, histogram
from plancha.metrics.histogram import Histogram
from plancha.record import Outcome
from plancha_transports.failures import Handler

INTERVAL_S = 0.1
LAG_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Metrics:
    """A registry of its own: two transports, or two servers in one process, do not mix.

    What is the worker's, the worker is asked for, once however many gateways there are.
    """

    def __init__(self, gateway: Gateway) -> None:
        self.lag = Histogram(*LAG_S)
        self.malformed: Counter[str] = Counter()  # by code
        self.http: Counter[tuple[str, str]] = Counter()  # by door and status
        self._gateway = gateway
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._registry.register(_Gateway(gateway, self))
        gateway.scraping.render = self.render

    async def measure_lag(self) -> None:
        """Task: until cancelled."""
        while True:
            due = anyio.current_time() + INTERVAL_S
            await anyio.sleep_until(due)
            self.lag.observe(max(0.0, anyio.current_time() - due))

    def count_malformed(self, failure: Failure) -> None:
        """One more; its code is one of a fixed set."""
        self.malformed[failure.code or failure.kind] += 1

    @web.middleware
    async def count(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Middleware, outside of all that may answer in a door's place."""
        status = 499
        try:
            response = await handler(request)
            status = response.status
            return response
        finally:
            resource = request.match_info.route.resource
            door = "none" if resource is None else resource.canonical
            self.http[door, str(status)] += 1

    async def show(self, request: web.Request) -> web.Response:
        """Everything, as it is now, of all gateways and of their worker."""
        parts: list[bytes] = []
        failed: list[RequestFailed] = []

        async def ask(part: Callable[[], Awaitable[bytes]]) -> None:
            try:
                parts.append(await part())
            except RequestFailed as failure:
                failed.append(failure)

        async with anyio.create_task_group() as tasks:  # a scraper waits for the slower one alone
            tasks.start_soon(ask, self._gateways)
            tasks.start_soon(ask, self._worker)
        if failed:
            raise failed[0]
        headers = {"Content-Type": CONTENT_TYPE_PLAIN_0_0_4}
        return web.Response(body=b"".join(parts), headers=headers)

    def render(self) -> str:
        """What this process alone knows."""
        return generate_latest(self._registry).decode()

    async def _gateways(self) -> bytes:
        """Of all that there are. Raises `RequestFailed` where the others cannot be asked."""
        collect = self._gateway.scraping.collect
        return (self.render() if collect is None else await collect()).encode()

    async def _worker(self) -> bytes:
        """The worker's part, and whether there is one that answers."""
        content: bytes | None = None
        with suppress(RequestFailed):
            content = (await self._gateway.inquiries.ask_worker("metrics")).content
        registry = CollectorRegistry()
        registry.register(_Worker(content is not None))
        return generate_latest(registry) + (content or b"")


@attrs.frozen
class _Worker:
    """Whether there is one."""

    up: bool

    def collect(self) -> Iterator[Metric]:
        """Called by the registry."""
        yield gauge("worker_up", "1: the worker answers.", self.up)


@attrs.frozen(eq=False)
class _Gateway:
    """What the gateway and its doors count."""

    gateway: Gateway
    metrics: Metrics

    def collect(self) -> Iterator[Metric]:
        """Called by the registry."""
        gateway, metrics = self.gateway, self.metrics
        yield gauge("open_requests", "Requests of this gateway.", gateway.running)
        yield gauge(
            "engine_stalled",
            "1: somebody has waited for the next step for longer than step_deadline_s.",
            gateway.stalled,
        )
        yield counters(
            "requests",
            "Requests that have ended, by outcome.",
            "outcome",
            {outcome: gateway.outcomes[outcome] for outcome in get_args(Outcome)},
        )
        yield histogram(
            "event_loop_lag_seconds",
            "How much later than it was due the gateway's event loop came to a task, sampled.",
            metrics.lag,
        )
        yield counters(
            "malformed_requests",
            "Refusals of bytes that are no HTTP, by what was wrong with them.",
            "code",
            metrics.malformed,
        )
        http = CounterMetricFamily(
            PREFIX + "http_requests",
            "Requests over HTTP that have ended, by door and by status; 499: the client had gone.",
            labels=("door", "status"),
        )
        for door_and_status, count in metrics.http.items():
            http.add_metric(door_and_status, count)
        yield http
