"""One line a request: what was asked of which door and how it ended, never what was said."""

import time

import structlog
from aiohttp import web

from plancha_transports.failures import Handler
from plancha_transports.request_ids import RECORD

log = structlog.get_logger()


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
        resource = request.match_info.route.resource
        log.info(
            "http_request",
            method=request.method[:20],
            door=resource.canonical if resource is not None else None,
            status=status,
            seconds=round(time.monotonic() - began, 3),
            request=record.id if record is not None else None,
        )
