"""One line a request: what was asked of which door and how it ended, never what was said."""

import time

import structlog
from aiohttp import hdrs, web

from plancha_transports.failures import Handler, door_of
from plancha_transports.request_ids import RECORD

log = structlog.get_logger()

WATCHED = frozenset({"/v1/live"})
"""Asked twice a second by every page that is open: worth a line for who debugs, if all is well."""


@web.middleware
async def access_log(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Middleware. Status 499 stands for a client that left before its answer was complete."""
    began = time.monotonic()
    status = 499
    try:
        response = await handler(request)
        status = response.status
        return response
    finally:
        record = request.get(RECORD)
        door = door_of(request)
        say = log.debug if door in WATCHED and status == 200 else log.info
        say(
            "http_request",
            method=request.method if request.method in hdrs.METH_ALL else "other",
            door=door,
            status=status,
            seconds=round(time.monotonic() - began, 3),
            request=record.id if record is not None else None,
        )
