"""aiohttp's WebSocket where it does less than it should: reasons, and messages that never end."""

import asyncio

import anyio
import attrs
from aiohttp import WSCloseCode, web

from plancha_transports.callers import SUBPROTOCOL
from plancha_transports.http_protocol import HttpProtocol
from plancha_transports.message_arrival import MessageArrival, Parser
from plancha_transports.options import HttpOptions
from plancha_transports.socket_writer import SocketWriter, open_messages

CLOSE_HANDSHAKE_S = 2.0  # how long a close waits for the client's own

_REASONS: dict[int, bytes] = {
    WSCloseCode.PROTOCOL_ERROR: b"that is not the WebSocket protocol",
    WSCloseCode.INVALID_TEXT: b"text must be valid UTF-8",
    WSCloseCode.MESSAGE_TOO_BIG: b"the message is over ws_max_message",
}


@attrs.frozen
class Closing:
    """A close of ours (RFC 6455, section 7.4), with at most 123 bytes of a reason."""

    code: int
    reason: bytes


class StreamSocket(web.WebSocketResponse):
    """A socket to be opened once. aiohttp closes on a protocol error by itself; this says why.

    Read from it inside `patience`, which is cancelled when a message takes longer than
    `body_timeout_s` to arrive, as an HTTP body may.
    """

    def __init__(self, options: HttpOptions) -> None:
        super().__init__(
            protocols=(SUBPROTOCOL,),
            timeout=CLOSE_HANDSHAKE_S,
            heartbeat=options.ws_heartbeat_s or None,
            compress=False,
            max_msg_size=options.ws_max_message + 1,  # aiohttp's limit is the first size over
        )
        self._options = options
        self._messages: SocketWriter | None = None
        self.patience = anyio.CancelScope()

    def can_open(self, request: web.Request) -> bool:
        """Whether its client asks for a WebSocket as it must."""
        try:
            return bool(self.can_prepare(request))
        except ValueError:  # aiohttp stumbles over bytes that are no text, and wording its refusal
            return False

    async def open(self, request: web.Request) -> SocketWriter:
        """Upgrade; its text messages go through what is returned."""
        protocol = request.protocol
        assert isinstance(protocol, HttpProtocol)
        protocol.around_parser = self._timed
        self._messages = await open_messages(request, self, self._options.max_pending_bytes)
        return self._messages

    def too_slow(self) -> Closing:
        """How to close when `patience` has ended."""
        reason = f"the message did not arrive within {self._options.body_timeout_s:g} s"
        return Closing(WSCloseCode.POLICY_VIOLATION, reason.encode())

    async def close(
        self, *, code: int = WSCloseCode.OK, message: bytes = b"", drain: bool = True
    ) -> bool:
        """As aiohttp's; our messages end before the close frame."""
        if self._messages is not None:
            self._messages.stop()
        return await super().close(
            code=code, message=message or _REASONS.get(code, b""), drain=drain
        )

    def _timed(self, parser: Parser, transport: asyncio.ReadTransport) -> Parser:
        timeout_s = self._options.body_timeout_s
        return MessageArrival(parser, transport, timeout_s, self.patience.cancel)
