"""`GET /v1/stream`: the WebSocket door and all conversations it holds open."""

import anyio
import structlog
from aiohttp import WSCloseCode, web

from plancha.gateway import Gateway
from plancha_transports.callers import SUBPROTOCOL, can_agree, tenant_on_socket
from plancha_transports.conversation import Conversation
from plancha_transports.failures import error_response
from plancha_transports.options import HttpOptions
from plancha_transports.request_bodies import BodyReader
from plancha_transports.socket_sender import SocketSender
from plancha_transports.socket_writer import SocketWriter, open_messages

log = structlog.get_logger()

CLOSE_HANDSHAKE_S = 2.0  # how long a close waits for the client's own


class StreamDoor:
    """Upgrades, and lets nobody be cut off without a word."""

    def __init__(self, gateway: Gateway, options: HttpOptions, bodies: BodyReader) -> None:
        self._gateway = gateway
        self._bodies = bodies
        self._options = options
        self._open: set[Conversation] = set()

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """A conversation, from upgrade to close."""
        if not can_agree(request):  # aiohttp would log what was offered, and so a key
            return error_response(
                400,
                "subprotocol_not_supported",
                f'Offer the subprotocol "{SUBPROTOCOL}", in one Sec-WebSocket-Protocol header, '
                "or none at all.",
            )
        socket = _Socket(
            protocols=(SUBPROTOCOL,),
            timeout=CLOSE_HANDSHAKE_S,
            heartbeat=self._options.ws_heartbeat_s or None,
            compress=False,
            max_msg_size=self._options.ws_max_message + 1,  # aiohttp's limit is the first size over
        )
        if not _can_upgrade(socket, request):
            response = error_response(
                426, "upgrade_required", "This is a WebSocket; connect with ws://…/v1/stream."
            )
            response.headers["Upgrade"] = "websocket"
            return response
        writer = await socket.open(request, self._options.max_pending_bytes)
        conversation = Conversation(
            self._gateway,
            socket,
            SocketSender(writer, self._options.stall_timeout_s),
            self._options,
            tenant_on_socket(request, self._gateway),
            self._bodies,
        )
        self._open.add(conversation)
        try:
            await conversation.run()
        except Exception:
            log.exception("conversation_failed")
            await socket.close(code=WSCloseCode.INTERNAL_ERROR, message=b"internal error")
        finally:
            self._open.discard(conversation)
        return socket

    async def finish(self) -> None:
        """Close every socket once its requests have their terminal messages."""
        async with anyio.create_task_group() as tasks:
            for conversation in self._open:
                tasks.start_soon(conversation.finish)


def _can_upgrade(socket: web.WebSocketResponse, request: web.Request) -> bool:
    try:
        return bool(socket.can_prepare(request))
    except ValueError:  # aiohttp stumbles over bytes that are no text, and in wording its refusal
        return False


class _Socket(web.WebSocketResponse):
    """aiohttp closes on a protocol error by itself, and gives no reason; this one does."""

    _messages: SocketWriter | None = None

    async def open(self, request: web.Request, most_pending: int) -> SocketWriter:
        """Upgrade."""
        self._messages = await open_messages(request, self, most_pending)
        return self._messages

    async def close(
        self, *, code: int = WSCloseCode.OK, message: bytes = b"", drain: bool = True
    ) -> bool:
        """As aiohttp's; our messages end before the close frame."""
        if self._messages is not None:
            self._messages.stop()
        return await super().close(
            code=code, message=message or _REASONS.get(code, b""), drain=drain
        )


_REASONS: dict[int, bytes] = {
    WSCloseCode.PROTOCOL_ERROR: b"that is not the WebSocket protocol",
    WSCloseCode.INVALID_TEXT: b"text must be valid UTF-8",
    WSCloseCode.MESSAGE_TOO_BIG: b"the message is over ws_max_message",
}
