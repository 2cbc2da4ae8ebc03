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
from plancha_transports.stream_socket import StreamSocket

log = structlog.get_logger()


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
        socket = StreamSocket(self._options)
        if not socket.can_open(request):
            response = error_response(
                426, "upgrade_required", "This is a WebSocket; connect with ws://…/v1/stream."
            )
            response.headers["Upgrade"] = "websocket"
            return response
        writer = await socket.open(request)
        conversation = Conversation(
            self._gateway,
            socket,
            SocketSender(writer, self._options.patience()),
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
