"""A connection's sending end, against aiohttp itself and the specifications."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import attrs
import pytest
from aiohttp import web

from plancha.failure import stalled
from plancha_transports.reader_patience import ReaderPatience
from plancha_transports.socket_writer import chunk, open_body, text_message
from slow_readers import PENDING_BYTES, body_of, slow_reader


@asynccontextmanager
async def writing(handler: Callable[[web.Request], Any]) -> AsyncIterator[int]:
    """The port of an aiohttp server with one door."""
    application = web.Application()
    application.add_routes([web.get("/", handler)])
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@attrs.frozen
class Address:
    port: int


async def test_aiohttp_still_tells_when_a_connection_is_full_and_when_it_is_not() -> None:
    """Everything that `socket_writer` relies on, against aiohttp itself."""
    filled, drained = anyio.Event(), anyio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        writer = await open_body(request, response, PENDING_BYTES)
        assert not writer.full()
        pieces = 0
        while not writer.full():
            writer.send(b"x" * 1000)
            pieces += 1
        assert PENDING_BYTES <= writer.transport().get_write_buffer_size() < PENDING_BYTES + 1100
        assert await writer.drained(ReaderPatience(0.001, 60)) == stalled(0.001)
        filled.set()
        assert await writer.drained(ReaderPatience(60, 60)) is None
        assert writer.transport().get_write_buffer_size() <= PENDING_BYTES // 4
        drained.set()
        writer.send(b"%d" % pieces)
        return response

    async with writing(handler) as port, slow_reader(Address(port)) as reader:
        await reader.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await filled.wait()
        answer = await reader.read_to(b"\r\n0\r\n\r\n")
        body = body_of(answer)
        assert drained.is_set()
        assert body.rstrip(b"0123456789") == b"x" * (1000 * int(body.lstrip(b"x")))


async def test_a_connection_that_goes_while_it_is_full_is_an_error() -> None:
    ended: list[BaseException] = []
    filled, over = anyio.Event(), anyio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        writer = await open_body(request, response, PENDING_BYTES)
        while not writer.full():
            writer.send(b"x" * 1000)
        filled.set()
        try:
            await writer.drained(ReaderPatience(60, 60))
        except ConnectionError as error:
            ended.append(error)
            with pytest.raises(ConnectionError):
                writer.send(b"x")
            writer.abort()
        over.set()
        return response

    async with writing(handler) as port:
        async with slow_reader(Address(port)) as reader:
            await reader.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await filled.wait()
        await over.wait()
    assert len(ended) == 1


def test_pieces_are_framed_as_the_specifications_say() -> None:
    assert chunk(b"x" * 26) == b"1a\r\n" + b"x" * 26 + b"\r\n"
    assert text_message(b"x" * 125) == b"\x81\x7d" + b"x" * 125
    assert text_message(b"x" * 126) == b"\x81\x7e\x00\x7e" + b"x" * 126
    assert text_message(b"x" * 65536) == b"\x81\x7f\0\0\0\0\0\1\0\0" + b"x" * 65536
