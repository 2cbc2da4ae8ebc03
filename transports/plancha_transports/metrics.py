"""`GET /metrics`: figures in Prometheus' text format, none of them a tenant's."""

from collections.abc import Iterator

import anyio
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from plancha.exposition import Exposition
from plancha.failure import Failure
from plancha.gateway import Gateway

INTERVAL_S = 0.1
LAG_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Metrics:
    """Registries of its own: two transports, or two servers in one process, do not mix.

    What is the worker's is apart: several gateways know it alike, and it is told once.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._registry = CollectorRegistry()
        self._worker_registry = CollectorRegistry()
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
        self._registry.register(_Requests(gateway))
        self._worker_registry.register(_Load(gateway))
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

    async def show(self, request: web.Request) -> web.Response:
        """Everything, as it is now, of all gateways."""
        collect = self._gateway.scraping.collect
        if collect is None:
            exposition = self.render()
            text = exposition.own + exposition.worker
        else:
            text = await collect()
        return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    def render(self) -> Exposition:
        """What this process alone knows."""
        return Exposition(
            own=generate_latest(self._registry).decode(),
            worker=generate_latest(self._worker_registry).decode(),
        )


class _Requests:
    """What runs here."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Called by the registry."""
        yield _gauge("open_requests", "Requests of this gateway.", self._gateway.running)


class _Load:
    """What the worker said last, and nothing of it before it said anything."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Called by the registry."""
        load = self._gateway.load
        if load is not None:
            yield _gauge("running_sequences", "Sequences in the batch.", load.running)
            yield _gauge("waiting_sequences", "Sequences that wait for it.", load.waiting)
            yield _gauge("kv_blocks", "Blocks of the KV pool.", load.total_blocks)
            yield _gauge("kv_free_blocks", "Blocks that hold nothing.", load.free_blocks)
            yield _gauge("kv_cached_blocks", "Blocks only the cache holds.", load.cached_blocks)
            yield _gauge("kv_waste_ratio", "Reserved token slots still empty.", load.waste)


def _gauge(name: str, about: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"plancha_{name}", about, value=value)
