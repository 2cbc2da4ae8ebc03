"""One WebSocket: requests that run side by side, told apart by the ids their client gave them."""

import time
from collections.abc import Callable

import anyio
import attrs
import structlog
from aiohttp import WSMsgType
from anyio.abc import TaskGroup

from plancha.calls.call import Call
from plancha.failure import Failure, RequestFailed, engine_error, invalid
from plancha.gateway import Gateway
from plancha.streams.generation import Generation
from plancha_transports.asks import Ask, generate_ask
from plancha_transports.delivery import Delivery
from plancha_transports.failures import CANCELLED
from plancha_transports.fields import label, shown
from plancha_transports.json_object import parse_object
from plancha_transports.options import HttpOptions
from plancha_transports.request_bodies import BodyReader
from plancha_transports.socket_messages import SocketEvents, cancelled, refused
from plancha_transports.socket_sender import SocketSender
from plancha_transports.stream_socket import Closing, StreamSocket

log = structlog.get_logger()

BINARY = Closing(1003, b"messages must be JSON text")


class Conversation:
    """Reads without ever waiting for a request, so that a cancel or a close is heard at once."""

    def __init__(
        self,
        gateway: Gateway,
        socket: StreamSocket,
        sender: SocketSender,
        options: HttpOptions,
        tenant: Callable[[], str],
        bodies: BodyReader,
    ) -> None:
        self._gateway = gateway
        self._socket = socket
        self._sender = sender
        self._options = options
        self._tenant = tenant  # whose socket it is now; raises when it is nobody's any more
        self._bodies = bodies
        self._running: dict[str, anyio.CancelScope] = {}
        self._ended = anyio.Event()

    async def run(self) -> None:
        """Serve until the client leaves or breaks the rules; then nothing runs any more."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._sender.run)
            closing = await self._listen(tasks)
            tasks.cancel_scope.cancel()
        if closing is not None:
            await self._socket.close(code=closing.code, message=closing.reason)

    async def finish(self) -> None:
        """Once every request has its terminal message, close because the server goes."""
        while self._running:
            self._ended = anyio.Event()
            await self._ended.wait()
        await self._socket.close(code=1001, message=b"the server is shutting down")

    async def _listen(self, tasks: TaskGroup) -> Closing | None:
        """Take what comes until nothing does; how to close if that is for us to do."""
        with self._socket.patience:
            async for message in self._socket:
                if message.type is WSMsgType.BINARY:
                    return BINARY
                if message.type is not WSMsgType.TEXT:
                    return None
                await self._take(message.data, tasks)
        return self._socket.too_slow() if self._socket.patience.cancelled_caught else None

    async def _take(self, text: str, tasks: TaskGroup) -> None:
        client_id: str | None = None
        try:
            body = await self._bodies.off_loop(len(text), lambda: parse_object(text, "message"))
            kind = body.pop("type", None)
            if kind not in ("generate", "cancel"):
                raise invalid("type", f'type is {shown(kind)}; it must be "generate" or "cancel".')
            client_id = label("id", body.pop("id", None))
            if kind == "cancel":
                self._cancel(client_id, body)
            else:
                self._check_room(client_id)
                ask = await self._bodies.off_loop(len(text), lambda: generate_ask(body, client_id))
                self._start(client_id, ask, tasks)
        except RequestFailed as failed:
            about = None if client_id in self._running else client_id
            await self._sender.send(refused(about, failed.failure))

    def _cancel(self, client_id: str, rest: dict[str, object]) -> None:
        """A request that has ended meanwhile is no mistake."""
        if rest:
            raise invalid(next(iter(rest)), "A cancel has the fields type and id, and no other.")
        if client_id in self._running:
            self._running[client_id].cancel()

    def _check_room(self, client_id: str) -> None:
        if client_id in self._running:
            message = f"The id {shown(client_id)} names a request that is still running."
            raise invalid("id", message, "id_in_use")
        if len(self._running) >= self._options.ws_max_requests:
            message = f"{len(self._running)} requests run on this socket; that is the limit."
            raise RequestFailed(Failure("busy", message, None, "too_many_requests"))

    def _start(self, client_id: str, ask: Ask, tasks: TaskGroup) -> None:
        call = attrs.evolve(ask.call, tenant=self._tenant())
        scope = self._running[client_id] = anyio.CancelScope()
        tasks.start_soon(self._answer, client_id, call, scope)

    async def _answer(self, client_id: str, call: Call, scope: anyio.CancelScope) -> None:
        """Task: one request, to its terminal message."""
        try:
            last = await self._generate(client_id, call, scope)
            await self._sender.room()
        finally:
            # Before the terminal message, after which the client may use the id again.
            del self._running[client_id]
            self._ended.set()
        self._sender.send_last(last)

    async def _generate(self, client_id: str, call: Call, scope: anyio.CancelScope) -> bytes:
        """Everything but the terminal message, which is returned."""
        events: SocketEvents | None = None
        failure: Failure | None = CANCELLED  # also when the client leaves
        began = time.monotonic()
        try:
            with scope:
                async with await self._gateway.generate(call) as generation:
                    events = SocketEvents(client_id, generation.record)
                    await self._deliver(events, generation)
                failure = None
        except RequestFailed as failed:
            failure = failed.failure
        except Exception:
            log.exception("socket_request_failed")
            failure = engine_error()
        finally:
            log.info(
                "socket_request",
                outcome="done" if failure is None else failure.code,
                seconds=round(time.monotonic() - began, 3),
                request=None if events is None else events.record.id,
            )
        return _last(client_id, events, failure)

    async def _deliver(self, events: SocketEvents, generation: Generation) -> None:
        """From `queued` to the last token. Raises `RequestFailed`."""
        await self._sender.send(events.queued())
        ended = anyio.Event()
        delivery = Delivery(
            generation=generation,
            outlet=self._sender.writer,
            events=events,
            most_pending=self._options.max_pending_tokens,
            on_full=self._sender.notice,
            on_end=ended.set,
        )
        self._sender.add(delivery)
        try:
            delivery.begin()
            await ended.wait()
        finally:
            self._sender.remove(delivery)
        if delivery.failure is not None:
            raise RequestFailed(delivery.failure)


def _last(client_id: str, events: SocketEvents | None, failure: Failure | None) -> bytes:
    """The terminal message; without `events` the request was never accepted."""
    if failure is None:
        assert events is not None
        return events.done()
    if events is not None:
        return events.failed(failure)
    return cancelled(client_id) if failure is CANCELLED else refused(client_id, failure)
