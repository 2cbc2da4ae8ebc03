"""`GET /v1/live`: how the worker looks at this moment, to operators or to one tenant."""

import attrs
from aiohttp import web

from plancha.failure import RequestFailed
from plancha.gateway import Gateway
from plancha.links.asking import NO_ANSWER
from plancha_transports.callers import TENANT


@attrs.frozen
class LiveDoor:
    """Asks the worker, which knows, and tells a tenant no more than is its own."""

    _gateway: Gateway

    async def show(self, request: web.Request) -> web.Response:
        """A snapshot as JSON. Raises `RequestFailed` when the worker does not answer."""
        tenant = request[TENANT]
        answer = await self._gateway.inquiries.ask_worker(
            "live", tenant=tenant, any_tenant=self._gateway.access.is_operator(tenant)
        )
        if answer.content is None:
            raise RequestFailed(NO_ANSWER)
        return web.Response(
            body=answer.content,
            content_type="application/json",
            headers={"Cache-Control": "no-store"},
        )
