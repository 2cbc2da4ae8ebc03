"""Whole messages over a byte stream: bounded when read, queued and joined when written."""

from collections import deque
from collections.abc import Callable
from typing import Any

import anyio
from anyio.abc import ByteStream
from anyio.streams.buffered import BufferedByteReceiveStream

from plancha.link import LinkLost
from plancha.wire import HEADER, MAX_MESSAGE, Wire, WireError, sizes

JOINED_BYTES = 2**18
"""Messages are written together up to about so many bytes."""

BROKEN = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


class MessageStream:
    """`push` queues and never waits; `write` is the task that sends. One reader, one writer."""

    def __init__(self, stream: ByteStream, wire: Wire) -> None:
        self.waiting_bytes = 0  # queued, or being sent
        self._stream = stream
        self._wire = wire
        self._received = BufferedByteReceiveStream(stream)
        self._queue: deque[bytes] = deque()
        self._news = anyio.Event()

    async def exchange(self, preamble: bytes) -> None:
        """Send the preamble and hear the same. Raises `LinkLost` when the peer's is another."""
        await self.send(preamble)
        heard = await self._receive(len(preamble))
        if heard != preamble:
            raise LinkLost(f"the other side speaks another protocol than {preamble!r}")

    async def send(self, data: bytes) -> None:
        """Send at once: for who needs no queue, and `write` does not run. Raises `LinkLost`."""
        try:
            await self._stream.send(data)
        except BROKEN:
            raise LinkLost("the other side is gone") from None

    def push(self, data: bytes) -> None:
        """Queue one encoded message."""
        self._queue.append(data)
        self.waiting_bytes += len(data)
        self._news.set()

    async def write(self, sent: Callable[[], None]) -> None:
        """Task: send what is queued, and call `sent` each time `waiting_bytes` has become less.

        Raises `LinkLost`.
        """
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            while self._queue:
                data = self._next()
                await self.send(data)
                self.waiting_bytes -= len(data)
                sent()

    async def receive(self, most: int = MAX_MESSAGE) -> Any:
        """The next message, of at most so many bytes.

        Raises `LinkLost` when the peer is gone, or sends what is none.
        """
        try:
            size, json_size = sizes(await self._receive(HEADER.size), most)
            return self._wire.decode(await self._receive(size), json_size)
        except WireError as error:
            raise LinkLost(str(error)) from None

    async def _receive(self, size: int) -> bytes:
        try:
            return await self._received.receive_exactly(size)
        except (anyio.EndOfStream, anyio.IncompleteRead, *BROKEN):
            raise LinkLost("the other side is gone") from None

    def _next(self) -> bytes:
        parts = [self._queue.popleft()]
        size = len(parts[0])
        while self._queue and size < JOINED_BYTES:
            parts.append(self._queue.popleft())
            size += len(parts[-1])
        return b"".join(parts) if len(parts) > 1 else parts[0]
