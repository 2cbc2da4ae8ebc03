"""A gateway's end of a link over a Unix socket."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from os import PathLike

import anyio

from plancha.failure import Failure, RequestFailed
from plancha.handshake import HANDSHAKE_S, KINDS, MAX_HELLO, PREAMBLE, Hello, Welcome
from plancha.link import LinkLost
from plancha.message_stream import MessageStream
from plancha.messages import Controls, ToGateway, ToWorker
from plancha.wire import Wire, WireError

BEAT_S = 2.0
"""A gateway says something so often, so that its worker can tell a stuck one from a quiet one."""

MOST_WAITING = 2**20
"""Bytes on their way to the worker beyond which `send` waits."""


class SocketLink:
    """A `plancha.link.Link`. Nothing is sent or noticed unless the task `run` runs."""

    def __init__(self, messages: MessageStream, wire: Wire, welcome: Welcome) -> None:
        self.welcome = welcome
        self._messages = messages
        self._wire = wire
        self._room = anyio.Event()
        self._lost = False

    async def run(self) -> None:
        """Task: write what is sent, and give signs of life. Raises `LinkLost`."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._beat)
                await self._messages.write(self._made_room)
        except* LinkLost as lost:
            raise lost.exceptions[0] from None
        finally:
            self._lose()

    async def send(self, item: ToWorker, /) -> None:
        """As `Link.send`. Raises `RequestFailed` for a request that no message can hold."""
        while self._messages.waiting_bytes > MOST_WAITING and not self._lost:
            await self._room.wait()
        if self._lost:
            raise LinkLost("the worker is gone")
        self.send_nowait(item)

    def send_nowait(self, item: ToWorker, /) -> None:
        """As `Link.send_nowait`."""
        try:
            self._messages.push(self._wire.encode(item))
        except WireError:
            message = "The request is larger than what the server's parts tell each other."
            raise RequestFailed(Failure("too_large", message)) from None

    async def __aiter__(self) -> AsyncIterator[ToGateway]:
        try:
            while True:
                yield await self._messages.receive()
        except LinkLost:
            self._lose()

    async def _beat(self) -> None:
        beat = self._wire.encode(Controls(()))
        while True:
            await anyio.sleep(BEAT_S)
            if not self._messages.waiting_bytes:
                self._messages.push(beat)

    def _made_room(self) -> None:
        room, self._room = self._room, anyio.Event()
        room.set()

    def _lose(self) -> None:
        self._lost = True
        self._made_room()


@asynccontextmanager
async def connect(path: str | PathLike[str], gateway: str) -> AsyncIterator[SocketLink]:
    """A link to the worker that listens at `path`, for the gateway of that name.

    Raises `LinkLost` when nobody listens, or somebody does who speaks otherwise.
    """
    try:
        stream = await anyio.connect_unix(path)
    except OSError as error:
        raise LinkLost(f"nobody listens at {path}: {error.strerror}") from None
    async with stream:
        wire = Wire(*KINDS)
        messages = MessageStream(stream, wire)
        welcome = None
        with anyio.move_on_after(HANDSHAKE_S):
            await messages.exchange(PREAMBLE)
            await messages.send(wire.encode(Hello(gateway)))
            welcome = await messages.receive(MAX_HELLO)
        if not isinstance(welcome, Welcome):
            raise LinkLost("the worker did not say welcome")
        yield SocketLink(messages, wire, welcome)
