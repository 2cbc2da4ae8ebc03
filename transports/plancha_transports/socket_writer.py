"""A connection's sending end: whole pieces at once, under aiohttp's own flow control.

This is the only module that reaches past aiohttp's responses to what carries them. Of that it uses
what is public: `BaseProtocol.writing_paused`, the transport, and the stream writer's `drain` and
`send_headers`. Awaiting aiohttp's `write` costs a task's wake-up for each piece, which is most of
what a streamed token costs.
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from time import monotonic

import attrs
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.base_protocol import BaseProtocol

from plancha.failure import Failure
from plancha_transports.reader_patience import ReaderPatience

Frame = Callable[[bytes], bytes]
"""What is put around a piece on the wire."""


_CHUNK_HEADS = tuple([b"%x\r\n" % size for size in range(1024)])  # of most chunks there are


def chunk(data: bytes) -> bytes:
    """A chunk of a chunked body (RFC 9112, section 7.1); `data` must not be empty."""
    size = len(data)
    head = _CHUNK_HEADS[size] if size < len(_CHUNK_HEADS) else b"%x\r\n" % size
    return b"".join((head, data, b"\r\n"))


def text_message(data: bytes) -> bytes:
    """A WebSocket text message in one frame, as a server sends it (RFC 6455, section 5.2)."""
    size = len(data)
    if size < 126:
        return b"\x81%c%b" % (size, data)
    if size < 1 << 16:
        return b"\x81\x7e" + size.to_bytes(2, "big") + data
    return b"\x81\x7f" + size.to_bytes(8, "big") + data


@attrs.define(eq=False)
class SocketWriter:
    """Writes without waiting, and says when it should have waited.

    What the socket does not take is buffered; it is `full` from `most_pending` bytes on until three
    quarters of them are gone. That is for its user to heed. The socket itself is told to take about
    as many: left alone, Linux takes up to four megabytes of what nobody reads.
    """

    _protocol: BaseProtocol
    _stream: AbstractStreamWriter
    frame: Frame
    sent_at: float = attrs.field(factory=monotonic, init=False)
    _stopped: bool = attrs.field(default=False, init=False)
    _draining: asyncio.Task[None] | None = attrs.field(default=None, init=False)

    def full(self) -> bool:
        """Whether the client lags."""
        return self._protocol.writing_paused

    def send(self, data: bytes) -> None:
        """Frame and `write` a piece."""
        self.write(self.frame(data))

    def write(self, framed: bytes) -> None:
        """Hand it to the socket, full or not. Raises `ConnectionError` when that is gone."""
        transport = self._protocol.transport
        if transport is None or self._stopped or transport.is_closing():
            raise ConnectionResetError("the connection is closed")
        self.sent_at = monotonic()
        transport.write(framed)

    async def drained(self, patience: ReaderPatience) -> Failure | None:
        """Wait until it is not full; otherwise why the `patience` has ended.

        Raises `ConnectionError` when it is gone. For one caller at a time.
        """
        if self.full():
            patience.begin(self.transport().get_write_buffer_size(), monotonic())
        while self.full():
            if self._draining is None:
                self._draining = asyncio.ensure_future(self._stream.drain())
                self._draining.add_done_callback(_retrieved)
            # Never cancelled: aiohttp shares what it awaits with everybody who drains.
            look_s = patience.next_look_s(monotonic())
            done, _ = await asyncio.wait({self._draining}, timeout=look_s)
            if done:
                draining, self._draining = self._draining, None
                if draining.cancelled():
                    raise ConnectionResetError("the connection is being closed")
                draining.result()
                self.transport()
            else:
                pending = self.transport().get_write_buffer_size()
                if (failure := patience.look(pending, monotonic())) is not None:
                    return failure
        return None

    def stop(self) -> None:
        """Send nothing any more: every `send` raises `ConnectionError`."""
        self._stopped = True

    def abort(self) -> None:
        """Reset the connection; what is buffered here and in the kernel is lost."""
        transport = self._protocol.transport
        if transport is not None:
            transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            transport.abort()

    def transport(self) -> asyncio.Transport:
        """What carries it. Raises `ConnectionError` when it is gone."""
        transport = self._protocol.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the connection is closed")
        return transport


async def open_body(
    request: web.Request, response: web.StreamResponse, most_pending: int
) -> SocketWriter:
    """Send the response's head; what is written then is its body.

    Raises `ConnectionError` when the client is gone.
    """
    stream = await response.prepare(request)
    assert stream is not None, "a response is started once"
    stream.send_headers()
    chunked = response.headers.get("Transfer-Encoding") == "chunked"  # not to an HTTP/1.0 client
    return _bounded(
        SocketWriter(request.protocol, stream, chunk if chunked else bytes), most_pending
    )


async def open_messages(
    request: web.Request, response: web.WebSocketResponse, most_pending: int
) -> SocketWriter:
    """Upgrade; what is written then are text messages. To be stopped before a close frame."""
    stream = await response.prepare(request)
    assert stream is not None, "a socket is opened once"
    return _bounded(SocketWriter(request.protocol, stream, text_message), most_pending)


def _bounded(writer: SocketWriter, most_pending: int) -> SocketWriter:
    transport = writer.transport()
    transport.set_write_buffer_limits(high=most_pending)
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, most_pending)
    return writer


def _retrieved(task: asyncio.Task[None]) -> None:
    """Nobody may be waiting any more when the connection goes."""
    if not task.cancelled():
        task.exception()
