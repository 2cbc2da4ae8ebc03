"""A worker's end of its links over a Unix socket: all gateways behind two channels."""

import asyncio
import os
from itertools import count
from os import PathLike
from typing import get_args

import anyio
import attrs
import structlog
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from plancha.links.connection import PAUSE_BYTES, Connection
from plancha.links.handshake import HANDSHAKE_S, KINDS, MAX_HELLO, PREAMBLE, Hello, Welcome
from plancha.links.lease import Lease
from plancha.links.link import LinkLost
from plancha.links.message_stream import READ_BYTES, MessageStream
from plancha.links.outgoing import Outgoing
from plancha.links.questions import WORKER, Questions
from plancha.links.shares import bills_by_connection, connection_of, first_stream, shares
from plancha.links.wire import Wire
from plancha.messages import (
    Answer,
    Ask,
    Cancel,
    Controls,
    Downstream,
    Frame,
    GatewayTopic,
    Rejected,
    Reload,
    Settled,
    Submit,
    ToWorker,
    Upstream,
)
from plancha.planning.report import NO_STREAMS, NO_TOKENS

log = structlog.get_logger()

GATEWAY_TOPICS = get_args(GatewayTopic)

LEASE_S = 15.0
"""A gateway that has said nothing for so long is given up; it says something every 2 s."""


class SocketGateways:
    """Listens at `path`. A gateway that is lost takes its sequences with it, and nobody else's."""

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        model: str,
        context_length: int,
        lease_s: float = LEASE_S,
    ) -> None:
        self.listening = anyio.Event()
        self._path = path
        self._welcome = Welcome(0, context_length, model)
        self._lease_s = lease_s
        self._wire = Wire(*KINDS)
        self._connections: dict[int, Connection] = {}
        self._numbers = count()
        self._questions = Questions()
        self._outgoing = Outgoing()

    async def run(
        self,
        upstream: MemoryObjectSendStream[Upstream],
        downstream: MemoryObjectReceiveStream[Downstream],
    ) -> None:
        """Task: bring what gateways send to `upstream`, and to each its part of `downstream`.

        Never waits for a gateway, so that the worker never does.
        """
        async with anyio.create_task_group() as tasks:

            def joined(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                tasks.start_soon(self._serve, upstream, reader, writer)

            server = await asyncio.start_unix_server(joined, self._path, limit=READ_BYTES)
            try:
                os.chmod(self._path, 0o600)
                self.listening.set()
                tasks.start_soon(self._control, upstream)
                await self._deliver(downstream)
            finally:
                server.close()
            tasks.cancel_scope.cancel()

    async def _deliver(self, downstream: MemoryObjectReceiveStream[Downstream]) -> None:
        async for message in downstream:
            match message:
                case Frame():
                    self._share(message)
                case Settled():
                    self._settle(message)
                case Rejected():
                    self._refuse(message)
                case Answer():
                    self._questions.answer(message, WORKER)

    async def _control(self, upstream: MemoryObjectSendStream[Upstream]) -> None:
        """What the link itself has to say of streams. A task of its own, since the channel may be
        full of what gateways say.
        """
        while True:
            for message in await self._outgoing.take():
                assert isinstance(message, Controls)  # a link has no answers of its own
                await upstream.send(message)

    async def _serve(
        self,
        upstream: MemoryObjectSendStream[Upstream],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        messages = MessageStream(reader, writer, self._wire, most_waiting=PAUSE_BYTES)
        try:
            connection = await self._greet(messages)
            await self._attend(connection, upstream)
        except LinkLost as lost:
            log.warning("gateway_refused", reason=str(lost))
        finally:
            messages.close()

    async def _greet(self, messages: MessageStream) -> Connection:
        hello = None
        with anyio.move_on_after(HANDSHAKE_S):
            await messages.exchange(PREAMBLE)
            hello = await messages.receive(MAX_HELLO)
        if not isinstance(hello, Hello):
            raise LinkLost("it did not say hello")
        number = next(self._numbers)
        messages.push(attrs.evolve(self._welcome, first_stream=first_stream(number)))
        return Connection(
            number=number, gateway=hello.gateway, messages=messages, control=self._outgoing.control
        )

    async def _attend(
        self, connection: Connection, upstream: MemoryObjectSendStream[Upstream]
    ) -> None:
        self._connections[connection.number] = connection
        self._questions.join(connection.gateway, connection.push)
        log.info("gateway_joined", gateway=connection.gateway)
        try:
            with connection.scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(connection.resume)
                    lease = Lease(self._lease_s)
                    tasks.start_soon(lease.watching)
                    await self._hear(connection, lease, upstream)
        except* LinkLost as lost:
            log.info("gateway_lost", gateway=connection.gateway, reason=str(lost.exceptions[0]))
        finally:
            del self._connections[connection.number]
            self._questions.leave(connection.gateway, connection.push)
            for each in connection.streams:
                self._outgoing.control(Cancel(each, "failed"))

    async def _hear(
        self,
        connection: Connection,
        lease: Lease,
        upstream: MemoryObjectSendStream[Upstream],
    ) -> None:
        while True:
            lease.listening()
            message: ToWorker = await connection.messages.receive()
            lease.heard()
            match message:
                case Submit():
                    connection.submitted(message)
                    await upstream.send(message)
                case Controls():
                    controls = connection.controlled(message)
                    if controls.controls:
                        await upstream.send(controls)
                case Reload():
                    await upstream.send(message)
                case Ask() if message.topic in GATEWAY_TOPICS:
                    self._questions.ask(message, connection.push)
                case Ask():
                    await upstream.send(self._questions.to_worker(message, connection.push))
                case Answer():
                    self._questions.answer(message, connection.gateway)
                case _:
                    raise LinkLost(f"a gateway does not say {type(message).__name__}")

    def _share(self, frame: Frame) -> None:
        parts = shares(frame)
        load: bytes | None = None
        for number, connection in self._connections.items():
            part = parts.get(number)
            if part is not None:
                connection.push(part)
            elif not (frame.load.running and connection.messages.waiting_bytes):
                # One that has enough to hear will hear of a later step, while there are any.
                load = load or self._wire.encode(_load_alone(frame))
                connection.push(load)

    def _settle(self, settled: Settled) -> None:
        for number, bills in bills_by_connection(settled).items():
            connection = self._connections.get(number)
            if connection is not None:
                connection.push(Settled(bills))
                connection.ended([stream for bill in bills for stream in bill.streams])

    def _refuse(self, rejected: Rejected) -> None:
        connection = self._connections.get(connection_of(rejected.streams[0]))
        if connection is not None:
            connection.push(rejected)
            connection.ended(rejected.streams)


def _load_alone(frame: Frame) -> Frame:
    return Frame(NO_STREAMS, NO_TOKENS, (), (), frame.load)
