"""A gateway's end of a link over a Unix socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from os import PathLike

import anyio

from plancha.failure import Failure, RequestFailed
from plancha.links.handshake import HANDSHAKE_S, KINDS, MAX_HELLO, PREAMBLE, Hello, Welcome
from plancha.links.link import LinkLost
from plancha.links.message_stream import READ_BYTES, MessageStream
from plancha.links.wire import Wire, WireError
from plancha.messages import Controls, ToGateway, ToWorker

BEAT_S = 2.0
"""A gateway says something so often, so that its worker can tell a stuck one from a quiet one."""

MOST_WAITING = 2**20
"""Bytes on their way to the worker beyond which `send` waits."""


class SocketLink:
    """A `plancha.links.link.Link`. Run the task `beat` beside it."""

    def __init__(self, messages: MessageStream, welcome: Welcome) -> None:
        self.welcome = welcome
        self._messages = messages
        self._lost = False

    async def beat(self) -> None:
        """Task: give signs of life."""
        while True:
            await anyio.sleep(BEAT_S)
            if not self._messages.waiting_bytes:
                self._messages.push(Controls(()))

    async def send(self, item: ToWorker, /) -> None:
        """As `Link.send`. Raises `RequestFailed` for a request that no message can hold."""
        await self._messages.drained()
        self.send_nowait(item)

    def send_nowait(self, item: ToWorker, /) -> None:
        """As `Link.send_nowait`."""
        if self._lost:
            raise LinkLost("the worker is gone")
        try:
            self._messages.push(item)
        except WireError:
            message = "The request is larger than what the server's parts tell each other."
            raise RequestFailed(Failure("too_large", message)) from None

    async def __aiter__(self) -> AsyncIterator[ToGateway]:
        try:
            while True:
                yield await self._messages.receive()
        except LinkLost:
            self._lost = True


@asynccontextmanager
async def connect(path: str | PathLike[str], gateway: str) -> AsyncIterator[SocketLink]:
    """A link to the worker that listens at `path`, for the gateway of that name.

    Raises `LinkLost` when nobody listens, or somebody does who speaks otherwise.
    """
    try:
        reader, writer = await asyncio.open_unix_connection(path, limit=READ_BYTES)
    except OSError as error:
        raise LinkLost(f"nobody listens at {path}: {error.strerror}") from None
    messages = MessageStream(reader, writer, Wire(*KINDS), most_waiting=MOST_WAITING)
    try:
        welcome = None
        with anyio.move_on_after(HANDSHAKE_S):
            await messages.exchange(PREAMBLE)
            messages.push(Hello(gateway))
            welcome = await messages.receive(MAX_HELLO)
        if not isinstance(welcome, Welcome):
            raise LinkLost("the worker did not say welcome")
        yield SocketLink(messages, welcome)
    finally:
        messages.close()
