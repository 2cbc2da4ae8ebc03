"""The `http` transport: every door's address, and a server that opens and closes with grace."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

import anyio
from aiohttp import web

from plancha.contracts import LoadError, Site
from plancha.failure import SHUTTING_DOWN
from plancha.gateway import Gateway
from plancha.options import structure
from plancha_transports.access_log import access_log
from plancha_transports.callers import authentication
from plancha_transports.connections import BACKLOG, Bounded, room_for
from plancha_transports.expectations import expecting
from plancha_transports.failures import failures_as_json
from plancha_transports.generate_door import GenerateDoor
from plancha_transports.hosts import Hosts, is_loopback
from plancha_transports.http_protocol import HttpProtocol
from plancha_transports.live_door import LiveDoor
from plancha_transports.metrics import Metrics
from plancha_transports.openai_doors import OpenAIDoors
from plancha_transports.openapi import OpenAPIDoor
from plancha_transports.options import HttpOptions
from plancha_transports.origins import Origins
from plancha_transports.page_door import PageDoor
from plancha_transports.request_bodies import BodyReader
from plancha_transports.request_ids import name_response
from plancha_transports.status_doors import StatusDoors
from plancha_transports.stream_door import StreamDoor
from plancha_transports.text_doors import TextDoors

CLOSING_S = 2.0  # what open streams have to send their last event when the server stops
LINGER_S = 1.0  # how long the rest of an unread body is taken off the line after an early answer


def http(options: Mapping[str, Any], site: Site) -> "HttpTransport":
    """The plugin. Raises `OptionsError`."""
    return HttpTransport(structure(options, HttpOptions, "transport.http"), site.shared_ports)


class HttpTransport:
    """A `plancha.gateway.Transport` on aiohttp."""

    def __init__(self, options: HttpOptions, shared_port: bool = False) -> None:
        self._options = options
        self._shared_port = shared_port

    @property
    def loopback_only(self) -> bool:
        """Whether nobody but this machine reaches it."""
        return is_loopback(self._options.host)

    @property
    def listens_at(self) -> tuple[str, int]:
        """Host and port, which are the options of that name."""
        return self._options.host, self._options.port

    async def run(self, gateway: Gateway, started: Callable[[str], None]) -> None:
        """Serve until cancelled; then every open stream gets its last event.

        Raises `LoadError` when the address cannot be listened on.
        """
        bodies = BodyReader(self._options)
        stream_door = StreamDoor(gateway, self._options, bodies)
        metrics = Metrics(gateway)
        runner = web.AppRunner(
            application(gateway, stream_door, self._options, bodies, metrics),
            handler_cancellation=True,  # a client that leaves cancels its request
            shutdown_timeout=CLOSING_S,
        )
        await runner.setup()
        listener = await self._listen(runner, metrics)
        try:
            started(self._address(listener))
            await metrics.measure_lag()
        finally:
            with anyio.CancelScope(shield=True):
                listener.close()
                gateway.fail_all(SHUTTING_DOWN)
                with anyio.move_on_after(CLOSING_S):
                    await stream_door.finish()
                await runner.cleanup()

    async def _listen(self, runner: web.AppRunner, metrics: Metrics) -> asyncio.Server:
        host, port = self._options.host, self._options.port
        server = runner.server
        assert server is not None

        def protocol() -> HttpProtocol:
            return HttpProtocol(
                server,
                metrics.count_malformed,
                auto_decompress=False,  # a megabyte may be a gigabyte inside
                keepalive_timeout=self._options.keepalive_s,
                lingering_time=LINGER_S,
                logger=_aiohttp_logger(),
            )

        protocols = Bounded(server, room_for(self._options.max_connections), protocol)
        try:
            return await asyncio.get_running_loop().create_server(
                protocols, host, port, backlog=BACKLOG, reuse_port=self._shared_port or None
            )
        except OSError as error:
            await runner.cleanup()
            raise LoadError(
                f"Cannot listen on host {host!r}, port {port}: {error.strerror}. "
                "Choose another port or host, or stop what uses it."
            ) from error

    def _address(self, listener: asyncio.Server) -> str:
        host, bound = self._options.host, listener.sockets[0].getsockname()[1]
        return f"http://{f'[{host}]' if ':' in host else host}:{bound}"


def application(
    gateway: Gateway,
    stream_door: StreamDoor,
    options: HttpOptions,
    bodies: BodyReader,
    metrics: Metrics,
) -> web.Application:
    """Every address there is."""
    hosts = Hosts(options.allowed_hosts, options.host)
    origins = Origins(options.allowed_origins)
    app = web.Application(
        middlewares=[
            metrics.count,
            access_log,
            failures_as_json,
            hosts.middleware(),
            origins.middleware(),
            authentication(gateway),
        ],
        client_max_size=options.max_body,
    )
    app.on_response_prepare.append(name_response)
    app.on_response_prepare.append(origins.allow_reading)
    openai = OpenAIDoors(gateway, options, bodies)
    status, texts = StatusDoors(gateway), TextDoors(gateway)
    page = PageDoor()
    app.add_routes(
        expecting(
            [
                web.post("/generate", GenerateDoor(gateway, options, bodies).generate),
                web.post("/v1/completions", openai.completions),
                web.post("/v1/chat/completions", openai.chat),
                web.get("/v1/stream", stream_door.stream, allow_head=False),
                web.get("/", page.page),
                web.get("/page/{file}", page.file),
                web.get("/v1/live", LiveDoor(gateway).show),
                web.get("/v1/models", status.models),
                web.get("/v1/models/{model:.+}", status.model),
                web.get("/v1/requests/{id}", status.request_status),
                web.get("/v1/requests/{id}/usage", status.request_usage),
                web.get("/v1/requests/{id}/trace", status.request_trace),
                web.post("/v1/requests/{id}/cancel", status.cancel_request),
                web.get("/v1/requests/{id}/text", texts.show),
                web.delete("/v1/requests/{id}/text", texts.delete),
                web.get("/health/live", status.live),
                web.get("/health/ready", status.ready),
                web.get("/health/startup", status.startup),
                web.get("/metrics", metrics.show),
                web.get("/openapi.json", OpenAPIDoor(gateway, options).document),
            ]
        )
    )
    return app


def _aiohttp_logger() -> logging.Logger:
    """aiohttp logs malformed requests with a trace, in which their bytes would show."""
    logger = logging.getLogger("plancha_transports.aiohttp")
    if not logger.filters:
        logger.addFilter(_without_trace)
    return logger


def _without_trace(record: logging.LogRecord) -> bool:
    record.exc_info = None
    return True
