"""How many connections may be open at once: beyond that a client is told so and let go."""

import asyncio
import resource
from collections.abc import Callable
from typing import cast

import orjson
from aiohttp import web

from plancha.failure import Failure
from plancha_transports.failures import error_object

SPARE_FILES = 64
"""Open files that the process needs besides its clients' connections."""

BACKLOG = 1024
"""Connections that the kernel may hold until they are taken."""

FULL = Failure("unavailable", "Too many connections are open.", None, "too_many_connections")


def room_for(connections: int) -> int:
    """How many of `connections` the process can have; its limit of open files is raised if need be.

    Without this the listening socket would fail once the limit is met, and log a trace each second.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        return max(1, most - SPARE_FILES)
    return connections


class Bounded:
    """A factory of protocols as `loop.create_server` wants one: what `make` makes for `server`
    while there is room.

    Whoever comes then gets a 503 before anything of the request is read.
    """

    def __init__(self, server: web.Server, most: int, make: Callable[[], asyncio.Protocol]) -> None:
        self._server = server
        self._most = most
        self._make = make
        self._made = 0  # so lately that the server has not counted them yet

    def __call__(self) -> asyncio.Protocol:
        if len(self._server.connections) + self._made >= self._most:
            return _Full()
        self._made += 1
        # Just before the server hears of it, which asyncio puts into the same queue next. Until
        # then others of the same burst may come.
        asyncio.get_running_loop().call_soon(self._counted)
        return self._make()

    def _counted(self) -> None:
        self._made -= 1


class _Full(asyncio.Protocol):
    """Says no."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(_refusal())
        transport.close()


def _refusal() -> bytes:
    body = orjson.dumps(error_object(FULL))
    head = (
        "HTTP/1.1 503 Service Unavailable\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Retry-After: 1\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body
