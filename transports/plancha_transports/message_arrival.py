"""How long a WebSocket message takes to arrive, from its first byte to its last.

aiohttp hands out whole messages and tells nothing of one that is still on its way, however slowly
it comes.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

import attrs

FINAL, OPCODE = 0x80, 0x0F
"""What a frame's first byte says: whether it is a message's last, and what it is."""

CONTROL = 8
"""The first opcode of control frames, which may come between the frames of a message."""


class Parser(Protocol):
    """What aiohttp feeds a WebSocket's bytes to."""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Some bytes, cut anywhere; whether that is the end, and what is left of them."""
        ...

    def feed_eof(self) -> None:
        """The connection is gone."""
        ...


@attrs.define
class MessageClock:
    """Follows a client's frames (RFC 6455, section 5.2) no further than to where they end.

    Whether they are well formed is for others to see; nothing is kept of what is in them.
    """

    begun_s: float | None = None  # when the message began that is on its way; None: none is
    _head: bytes = attrs.field(default=b"", init=False)  # of a frame, cut off
    _first: int = attrs.field(default=0, init=False)  # byte of the frame that is on its way
    _left: int = attrs.field(default=0, init=False)  # bytes of its payload
    _fragmented: bool = attrs.field(default=False, init=False)  # more frames of a message follow

    def feed(self, data: bytes, now: float) -> None:
        """What came now."""
        if self._left:
            if self._left > len(data):
                self._left -= len(data)
                return
            place, self._left = self._left, 0
            self._end_frame(self._first)
        else:
            data, place = self._head + data, 0
        while (frame := _frame_at(data, place)) is not None:
            first, end = frame
            if end > len(data):
                self._first, self._left = first, end - len(data)
                break
            self._end_frame(first)
            place = end
        self._head = b"" if self._left else data[place:]
        if self.begun_s is None and (self._left or self._head or self._fragmented):
            self.begun_s = now

    def _end_frame(self, first: int) -> None:
        if first & OPCODE < CONTROL:
            self._fragmented = not first & FINAL
        if not self._fragmented:
            self.begun_s = None


@attrs.define(eq=False)
class MessageArrival:
    """Passes bytes on to aiohttp's `parser`; calls `on_slow` when a message takes too long.

    While the server itself reads nothing, since it has enough to do with what came before, the
    message is given its time anew.
    """

    _parser: Parser
    _transport: asyncio.ReadTransport
    _timeout_s: float
    _on_slow: Callable[[], None]
    _clock: MessageClock = attrs.field(factory=MessageClock, init=False)
    _timer: asyncio.TimerHandle | None = attrs.field(default=None, init=False)

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """See `Parser.feed_data`."""
        loop = asyncio.get_running_loop()
        self._clock.feed(data, loop.time())
        if self._timer is None and self._clock.begun_s is not None:
            self._timer = loop.call_at(self._clock.begun_s + self._timeout_s, self._look)
        return self._parser.feed_data(data)

    def feed_eof(self) -> None:
        """See `Parser.feed_eof`."""
        if self._timer is not None:
            self._timer.cancel()
        self._parser.feed_eof()

    def _look(self) -> None:
        self._timer = None
        begun_s = self._clock.begun_s
        if begun_s is None:
            return
        loop = asyncio.get_running_loop()
        if not self._transport.is_reading():
            begun_s = loop.time()
        if begun_s + self._timeout_s <= loop.time():
            self._on_slow()
        else:  # another message than the one it was set for
            self._timer = loop.call_at(begun_s + self._timeout_s, self._look)


def _frame_at(data: bytes, place: int) -> tuple[int, int] | None:
    """The first byte of the frame there, and where it ends; None: its head is not complete."""
    if len(data) < place + 2:
        return None
    second = data[place + 1]
    length = second & 0x7F
    end = place + (6 if second & 0x80 else 2)
    if length >= 126:
        wide = 2 if length == 126 else 8
        length = int.from_bytes(data[place + 2 : place + 2 + wide], "big")
        end += wide
    return (data[place], end + length) if end <= len(data) else None
