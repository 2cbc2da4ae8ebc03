"""A cable between a client and a server, to be cut."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
import attrs
from anyio.abc import ByteReceiveStream, ByteSendStream, SocketAttribute, SocketStream


@attrs.define(eq=False)
class Cable:
    """`port` leads to the server; `cut` breaks off whatever goes through, and new calls get on."""

    port: int
    _open: set[anyio.CancelScope] = attrs.field(factory=set)

    def cut(self) -> None:
        for scope in self._open:
            scope.cancel()


@asynccontextmanager
async def cable_to(server_port: int) -> AsyncIterator[Cable]:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    cable = Cable(listener.extra(SocketAttribute.local_port))

    async def carry(client: SocketStream) -> None:
        with anyio.CancelScope() as scope:
            cable._open.add(scope)
            async with client, await anyio.connect_tcp("127.0.0.1", server_port) as server:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_copy, client, server, scope)
                    tasks.start_soon(_copy, server, client, scope)
        cable._open.discard(scope)

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, carry)
        yield cable
        tasks.cancel_scope.cancel()


async def _copy(from_: ByteReceiveStream, to: ByteSendStream, scope: anyio.CancelScope) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async for data in from_:
            await to.send(data)
    scope.cancel()
