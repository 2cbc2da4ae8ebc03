"""A client's connection, where aiohttp's own answers would not be ours."""

import asyncio
from collections.abc import Callable
from typing import Any

import structlog
from aiohttp import web

from plancha.failure import Failure, engine_error
from plancha_transports.failures import failure_response
from plancha_transports.malformed import BAD_BODY, LONGEST_LINE, MOST_HEADERS, malformed
from plancha_transports.message_arrival import Parser

log = structlog.get_logger()


AroundParser = Callable[[Parser, asyncio.ReadTransport], Parser]


class HttpProtocol(web.RequestHandler):
    """aiohttp's, but what is refused before any door is asked is told in our words.

    aiohttp would answer with the malformed bytes in plain text, and log them. `on_malformed` is
    told of each such refusal, and `around_parser`, once set, asked what is to be around the parser
    of a WebSocket. To be made only while `server` is set up.
    """

    __slots__ = ("_on_malformed", "around_parser")

    def __init__(
        self, server: web.Server, on_malformed: Callable[[Failure], None], **settings: Any
    ) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            max_line_size=LONGEST_LINE,
            max_field_size=LONGEST_LINE,
            max_headers=MOST_HEADERS,
            **{"access_log": None, **settings},  # our access log is a middleware
        )
        self._on_malformed = on_malformed
        self.around_parser: AroundParser | None = None

    def data_received(self, data: bytes) -> None:
        """A body that turns out to be malformed ends there.

        aiohttp queues its complaint behind the request whose body it is, and leaves that waiting.
        Nothing else can be queued there before the body's end.
        """
        super().data_received(data)
        if self._messages:
            request = self._current_request
            if request is not None and not request.content.is_eof():
                request.content.set_exception(web.RequestPayloadError(BAD_BODY.message))
                request.content.feed_eof()

    def set_parser(self, parser: Any, data_received_cb: Callable[[], None] | None = None) -> None:
        """aiohttp's hook: from here on the connection is a WebSocket, and `parser` its reader."""
        if self.around_parser is not None and self.transport is not None:
            parser = self.around_parser(parser, self.transport)
        super().set_parser(parser, data_received_cb)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """aiohttp's hook: what is answered where no handler could. The connection is closed.

        Raises `ConnectionError` when a part of another answer has been sent.
        """
        failure = malformed(exc) if status == 400 else engine_error()
        if status == 400:
            self._on_malformed(failure)
            log.info("http_malformed", status=status, code=failure.code)
        elif not isinstance(exc, ConnectionError):
            log.error("http_failed", error=type(exc).__name__)
        if request.writer.output_size > 0:
            raise ConnectionResetError("a part of an answer has been sent")
        response = failure_response(failure)
        response.headers["Connection"] = "close"  # aiohttp says so to HTTP/1.1 clients only
        response.force_close()
        return response
