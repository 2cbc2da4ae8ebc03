"""Whole messages over a socket: bounded when read, queued by the transport when written.

On asyncio's own transports: a write goes out at once where it can, and a cancelled task leaves no
half of a message behind.
"""

import asyncio
from typing import Any

from plancha.links.link import LinkLost
from plancha.links.wire import HEADER, MAX_MESSAGE, Wire, WireError, sizes

READ_BYTES = 2**20
"""What is read ahead of the message at hand."""

GONE = "the other side is gone"


class MessageStream:
    """One reader; any task may write. `drained` tells a writer when to go on."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        wire: Wire,
        *,
        most_waiting: int,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._wire = wire
        writer.transport.set_write_buffer_limits(most_waiting, most_waiting // 2)

    @property
    def waiting_bytes(self) -> int:
        """What was pushed and the socket has not taken yet."""
        return self._writer.transport.get_write_buffer_size()

    async def exchange(self, preamble: bytes) -> None:
        """Send the preamble and hear the same. Raises `LinkLost` when the peer's is another."""
        self._writer.write(preamble)
        if await self._receive(len(preamble)) != preamble:
            raise LinkLost(f"the other side speaks another protocol than {preamble!r}")

    def push(self, message: Any) -> None:
        """Queue a message. Never waits. Raises `WireError` when it cannot be encoded."""
        self._writer.write(self._wire.encode(message))

    def push_encoded(self, data: bytes) -> None:
        """Queue a message that is encoded already."""
        self._writer.write(data)

    async def drained(self) -> None:
        """Wait while more than `most_waiting` bytes wait, until half of them are gone.

        Raises `LinkLost`.
        """
        try:
            await self._writer.drain()
        except OSError:
            raise LinkLost(GONE) from None

    async def receive(self, most: int = MAX_MESSAGE) -> Any:
        """The next message, of at most so many bytes.

        Raises `LinkLost` when the peer is gone, or sends what is none.
        """
        try:
            size, json_size = sizes(await self._receive(HEADER.size), most)
            return self._wire.decode(await self._receive(size), json_size)
        except WireError as error:
            raise LinkLost(str(error)) from None

    def close(self) -> None:
        """Let go of the socket at once; what waits is lost."""
        self._writer.transport.abort()

    async def _receive(self, size: int) -> bytes:
        try:
            return await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, OSError):
            raise LinkLost(GONE) from None
