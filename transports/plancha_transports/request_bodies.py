"""Bodies of requests: read within limits of size, time and memory, and understood off the loop.

What a body costs, measured for 8 MiB: read as text 20 ms, as a million token ids 80, as nothing but
`[]` 700. orjson keeps the interpreter to itself meanwhile, in a thread too; so what is dear for its
size is counted first and refused, and the checks of everything large run in a thread.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from aiohttp import web

from plancha.failure import Failure, RequestFailed
from plancha_transports.json_object import parse_object
from plancha_transports.malformed import BAD_BODY
from plancha_transports.options import HttpOptions

T = TypeVar("T")

LARGE = 64 * 2**10
"""Bytes from which a body is understood in a thread: below that the checks take few ms at most."""

THREADS = 2

COMPRESSED = Failure(
    "media_type",
    "The body must not be compressed: leave the header Content-Encoding out.",
    None,
    "unsupported_content_encoding",
)

NOT_JSON = Failure(
    "media_type",
    "The body must be JSON: send the header Content-Type: application/json.",
    None,
    "unsupported_media_type",
)


class BodyReader:
    """Reads the bodies of all doors, and holds no more than `max_bodies` bytes of them at once."""

    def __init__(self, options: HttpOptions) -> None:
        self._options = options
        self._most_held = max(options.max_bodies, options.max_body)
        self._held = 0  # bytes of bodies that are not in tokens yet
        self._threads = anyio.CapacityLimiter(THREADS)

    @asynccontextmanager
    async def reading(
        self, request: web.Request, understand: Callable[[dict[str, Any]], T]
    ) -> AsyncIterator[T]:
        """What `understand` makes of the JSON object in the request's body.

        Its bytes count as held inside: leave when it is in tokens, which are bounded elsewhere.
        Raises `RequestFailed` of kind media_type, too_large, slow, busy or invalid, and what
        `understand` raises. A body over `max_body` bytes is not read to its end.
        """
        limit = self._options.max_body
        if request.content_type != "application/json" or not _is_utf8(request.charset):
            raise RequestFailed(NOT_JSON)
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise RequestFailed(COMPRESSED)
        if request.content_length is not None and request.content_length > limit:
            raise _too_large(limit)
        async with self._body(request) as raw:
            yield await self.off_loop(len(raw), lambda: understand(parse_object(raw)))

    async def off_loop(self, size: int, work: Callable[[], T]) -> T:
        """What `work` returns, which looks at `size` bytes; done in a thread if they are many."""
        if size < LARGE:
            return work()
        return await anyio.to_thread.run_sync(work, limiter=self._threads)

    @asynccontextmanager
    async def _body(self, request: web.Request) -> AsyncIterator[bytes]:
        body = bytearray()
        try:
            with anyio.move_on_after(self._options.body_timeout_s) as patience:
                try:
                    async for chunk in request.content.iter_any():
                        body += chunk
                        self._held += len(chunk)
                        self._check_sizes(len(body))
                except web.RequestPayloadError:
                    raise RequestFailed(BAD_BODY) from None
            if patience.cancelled_caught:
                raise _slow(self._options.body_timeout_s)
            yield bytes(body)
        finally:
            self._held -= len(body)

    def _check_sizes(self, size: int) -> None:
        if size > self._options.max_body:
            raise _too_large(self._options.max_body)
        if self._held > self._most_held:
            message = "Too much is being uploaded at once; try again in a moment."
            raise RequestFailed(Failure("busy", message, None, "too_many_bodies"))


def _too_large(max_body: int) -> RequestFailed:
    message = f"The body is over {max_body:,} bytes."
    return RequestFailed(Failure("too_large", message, None, "body_too_large"))


def _slow(timeout_s: float) -> RequestFailed:
    message = f"The body did not arrive within {timeout_s:g} seconds."
    return RequestFailed(Failure("slow", message, None, "body_timeout"))


def _is_utf8(charset: str | None) -> bool:
    return charset is None or charset.lower().replace("_", "-") in ("utf-8", "utf8")
