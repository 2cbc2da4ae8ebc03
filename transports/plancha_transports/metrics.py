"""`GET /metrics`: figures in Prometheus' text format, of all gateways and of their worker."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import get_args

import anyio
from aiohttp import web
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from plancha.failure import Failure, RequestFailed
from plancha.gateway import Gateway
from plancha.record import Outcome
from plancha_transports.failures import Handler

INTERVAL_S = 0.1
LAG_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Metrics:
    """A registry of its own: two transports, or two servers in one process, do not mix.

    What is the worker's, the worker is asked for, once however many gateways there are.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._registry = CollectorRegistry()
        self._lag = Histogram(
            "plancha_event_loop_lag_seconds",
            "How much later than it was due the gateway's event loop came to a task, sampled.",
            buckets=LAG_BUCKETS_S,
            registry=self._registry,
        )
        self._malformed = Counter(
            "plancha_malformed_requests",
            "Refusals of bytes that are no HTTP, by what was wrong with them.",
            ["code"],
            registry=self._registry,
        )
        self._http = Counter(
            "plancha_http_requests",
            "Requests over HTTP that have ended, by door and by status; 499: the client had gone.",
            ["door", "status"],
            registry=self._registry,
        )
        ProcessCollector(registry=self._registry)
        self._registry.register(_Gateway(gateway))
        gateway.scraping.render = self.render

    async def measure_lag(self) -> None:
        """Task: until cancelled."""
        while True:
            due = anyio.current_time() + INTERVAL_S
            await anyio.sleep_until(due)
            self._lag.observe(max(0.0, anyio.current_time() - due))

    def count_malformed(self, failure: Failure) -> None:
        """One more; its code is one of a fixed set."""
        self._malformed.labels(failure.code).inc()

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
            self._http.labels(door, status).inc()

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
            content = (await self._gateway.ask_worker("metrics")).content
        registry = CollectorRegistry()
        Gauge("plancha_worker_up", "1: the worker answers.", registry=registry).set(
            content is not None
        )
        return generate_latest(registry) + (content or b"")


class _Gateway:
    """What the gateway counts by itself."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def collect(self) -> Iterator[Metric]:
        """Called by the registry."""
        gateway = self._gateway
        yield GaugeMetricFamily(
            "plancha_open_requests", "Requests of this gateway.", value=gateway.running
        )
        yield GaugeMetricFamily(
            "plancha_engine_stalled",
            "1: somebody has waited for the next step for longer than step_deadline_s.",
            value=gateway.stalled,
        )
        outcomes = CounterMetricFamily(
            "plancha_requests", "Requests that have ended, by outcome.", labels=("outcome",)
        )
        for outcome in get_args(Outcome):
            outcomes.add_metric((outcome,), gateway.outcomes[outcome])
        yield outcomes
