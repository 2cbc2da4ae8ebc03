"""The header Expect (RFC 9110, section 10.1.1): who asks whether to send a body is told to."""

from collections.abc import Iterable, Iterator

import attrs
from aiohttp import HttpVersion11, web

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


async def continue_if_asked(request: web.Request) -> None:
    """Any other expectation is passed over, as a server may; aiohttp's own answers it with a 417
    or, where it is no text, a 500.
    """
    if request.version == HttpVersion11 and request.headers["Expect"].lower() == "100-continue":
        await request.writer.write(CONTINUE)
        request.writer.output_size = 0  # as aiohttp does: this was not the response


def expecting(doors: Iterable[web.RouteDef]) -> Iterator[web.RouteDef]:
    """The doors, with that."""
    for door in doors:
        yield attrs.evolve(door, kwargs={**door.kwargs, "expect_handler": continue_if_asked})
