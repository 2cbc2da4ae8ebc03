"""Server-sent events (WHATWG HTML, section 9.2): when they start, go on, and end."""

import math
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from typing import Protocol

import anyio
import orjson
import structlog
from aiohttp import web

from plancha.failure import Failure
from plancha.streams.generation import Generation
from plancha.streams.outbox import Delta
from plancha_transports import delivery
from plancha_transports.answers import uncancelled
from plancha_transports.options import HttpOptions
from plancha_transports.socket_writer import SocketWriter, open_body

log = structlog.get_logger()

HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # nginx would hold events back
}
HEARTBEAT = b":\n\n"  # a comment, which clients skip
DONE = b"data: [DONE]\n\n"


class Events(delivery.Events, Protocol):
    """With its last words."""

    def done(self) -> bytes:
        """Every stream ended well."""
        ...

    def failed(self, failure: Failure) -> bytes:
        """The generation broke off; nothing follows."""
        ...


def event(data: object, name: str | None = None) -> bytes:
    """One event with `data` as JSON."""
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + orjson.dumps(data) + b"\n\n"


def opened(data: Mapping[str, object]) -> bytes:
    """A JSON object without its last brace, to be gone on with."""
    return orjson.dumps(data)[:-1]


async def stream_events(
    request: web.Request, generation: Generation, events: Events, options: HttpOptions
) -> web.StreamResponse:
    """Send `generation` as events until it ends. It is cancelled by whoever holds it open.

    Raises `RequestFailed` as long as nothing has been sent: until the first token, or until
    `headers_after_s` have passed. After that a failure is an event and the body ends properly.
    """
    first: list[Delta] = []
    with anyio.move_on_after(options.headers_after_s):
        first = uncancelled(await anext(generation))
    opening = events.deltas(first) if first else HEARTBEAT
    response = web.StreamResponse(headers=HEADERS)
    writer = await open_body(request, response, options.max_pending_bytes)
    with suppress(ConnectionError):  # the client is gone
        if opening:
            writer.send(opening)
        await _Line(writer, generation, events, options).run()
    return response


class _Line:
    """A response that is being streamed. Its task wakes up only for what is not a token."""

    def __init__(
        self,
        writer: SocketWriter,
        generation: Generation,
        events: Events,
        options: HttpOptions,
    ) -> None:
        self._writer = writer
        self._events = events
        self._options = options
        self._patience = options.patience()
        self._record = generation.record
        self._news = anyio.Event()
        self._delivery = delivery.Delivery(
            generation=generation,
            outlet=writer,
            events=events,
            most_pending=options.max_pending_tokens,
            on_full=self._notice,
            on_end=self._notice,
        )

    async def run(self) -> None:
        """To the last event, and until the client has taken it or is given up.

        Raises `ConnectionError` when the client is gone.
        """
        self._delivery.begin()
        while not self._delivery.over:
            await (self._make_room() if self._writer.full() else self._keep_alive())
        failure = self._delivery.failure
        self._writer.send(self._events.done() if failure is None else self._events.failed(failure))
        if await self._writer.drained(self._patience) is not None:
            self._writer.abort()

    async def _make_room(self) -> None:
        """The client lags: go on when it has taken enough, or break off if it takes too long."""
        failure = await self._writer.drained(self._patience)
        if failure is None:
            self._delivery.push()
        else:
            log.warning("reader_stalled", request=self._record.id)
            self._delivery.stop(failure)

    async def _keep_alive(self) -> None:
        """Until there is news; a heartbeat if nothing was sent for so long."""
        interval_s = self._options.heartbeat_s or math.inf
        with anyio.move_on_after(self._writer.sent_at + interval_s - monotonic()):
            await self._news.wait()
            self._news = anyio.Event()
            return
        due = monotonic() >= self._writer.sent_at + interval_s
        if due and not self._writer.full():
            self._writer.send(HEARTBEAT)

    def _notice(self) -> None:
        self._news.set()
