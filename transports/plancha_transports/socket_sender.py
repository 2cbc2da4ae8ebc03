"""What goes out on one WebSocket, for all of its requests together."""

from collections import deque
from contextlib import suppress

import anyio
import structlog

from plancha_transports.delivery import Delivery
from plancha_transports.reader_patience import ReaderPatience
from plancha_transports.socket_writer import SocketWriter

log = structlog.get_logger()


class SocketSender:
    """Single messages, and the deliveries that share the socket's `writer`.

    When the socket is full all of them wait; `run` sees to it that they go on in turn, or that they
    are broken off when the `patience` with the client ends. If it ends once more, even with that,
    the connection is closed.
    """

    def __init__(self, writer: SocketWriter, patience: ReaderPatience) -> None:
        self.writer = writer
        self._patience = patience
        self._deliveries: deque[Delivery] = deque()
        self._lagging = anyio.Event()
        self._room = anyio.Event()

    async def send(self, message: bytes) -> None:
        """When there is `room`. To a client that is gone, nothing."""
        await self.room()
        self.send_last(message)

    def send_last(self, message: bytes) -> None:
        """At once: full or not, it is the last that its request has to say."""
        with suppress(ConnectionError):  # a client that left is noticed by reading
            self.writer.send(message)

    def add(self, delivery: Delivery) -> None:
        """It is pushed from now on when there is room again."""
        self._deliveries.append(delivery)

    def remove(self, delivery: Delivery) -> None:
        """It is over."""
        self._deliveries.remove(delivery)

    def notice(self) -> None:
        """Somebody met a full socket."""
        self._lagging.set()

    async def room(self) -> None:
        """Wait while the client lags, but no longer than until it counts as stalled."""
        if self.writer.full():
            self.notice()
            await self._room.wait()

    async def run(self) -> None:
        """Task: until cancelled, or the connection is gone."""
        while True:
            await self._lagging.wait()
            self._lagging = anyio.Event()
            try:
                await self._make_room()
            except ConnectionError:
                return self._let_in()

    async def _make_room(self) -> None:
        failure = await self.writer.drained(self._patience)
        if failure is not None:
            log.warning("reader_stalled", requests=len(self._deliveries))
            for delivery in list(self._deliveries):
                delivery.stop(failure)
            self._let_in()
            if await self.writer.drained(self._patience) is not None:
                self.writer.abort()
        self._let_in()
        for _ in range(len(self._deliveries)):
            self._deliveries[0].push()
            self._deliveries.rotate(-1)

    def _let_in(self) -> None:
        self._room.set()
        self._room = anyio.Event()
