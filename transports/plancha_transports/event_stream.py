"""Server-sent events (WHATWG HTML, section 9.2): when they start, go on, and end."""

from contextlib import suppress
from typing import Protocol

import anyio
import orjson
import structlog
from aiohttp import web

from plancha.failure import Failure, RequestFailed, engine_error
from plancha.generation import Generation
from plancha.outbox import Delta
from plancha_transports.answers import uncancelled
from plancha_transports.options import HttpOptions

log = structlog.get_logger()

HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # nginx would hold events back
}
HEARTBEAT = b":\n\n"  # a comment, which clients skip
DONE = b"data: [DONE]\n\n"


class Events(Protocol):
    """One door's wording of what happens to a generation; each method gives bytes to send."""

    def deltas(self, deltas: list[Delta]) -> bytes:
        """Tokens came, or streams ended; may be b"" when nothing is to be told."""
        ...

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
    response = web.StreamResponse(headers=HEADERS)
    await response.prepare(request)
    line = _Line(response)
    async with anyio.create_task_group() as tasks:
        if options.heartbeat_s:
            tasks.start_soon(line.keep_alive, options.heartbeat_s)
        await _send_all(line, first, generation, events)
        tasks.cancel_scope.cancel()
    return response


async def _send_all(
    line: "_Line", first: list[Delta], generation: Generation, events: Events
) -> None:
    try:
        await line.send(events.deltas(first) if first else HEARTBEAT)
        async for deltas in generation:
            await line.send(events.deltas(uncancelled(deltas)))
        last = events.done()
    except ConnectionError:
        return  # the client is gone
    except RequestFailed as failed:
        last = events.failed(failed.failure)
    except Exception:
        log.exception("stream_failed", request=generation.record.id)
        last = events.failed(engine_error())
    with suppress(ConnectionError):
        await line.send(last)


class _Line:
    """A response that is being streamed, and when something last went out on it."""

    def __init__(self, response: web.StreamResponse) -> None:
        self._response = response
        self._sent_at = anyio.current_time()

    async def send(self, data: bytes) -> None:
        """Write; waits while the client's buffers are full. Raises `ConnectionError`."""
        if data:
            self._sent_at = anyio.current_time()
            await self._response.write(data)

    async def keep_alive(self, interval_s: float) -> None:
        """Task: a heartbeat whenever nothing was sent for so long."""
        with suppress(ConnectionError):
            while True:
                await anyio.sleep_until(self._sent_at + interval_s)
                if anyio.current_time() >= self._sent_at + interval_s:
                    await self.send(HEARTBEAT)
