"""`/v1/requests/{id}/text`: what is kept of a request's prompts and outputs, and its deletion."""

from aiohttp import web

from plancha.failure import Failure, RequestFailed
from plancha.gateway import Gateway
from plancha.texts import Kept
from plancha_transports.callers import TENANT
from plancha_transports.failures import json_response

NOT_KEPT = Failure(
    "not_found",
    "No prompt and no output is kept of this request.",
    None,
    "text_not_kept",
)
RUNNING = Failure(
    "not_found",
    "This request still runs; what is kept of its text is there once it has ended.",
    None,
    "request_running",
)


class TextDoors:
    """For the tenant whose request it is, and for operators; to others it does not exist."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def show(self, request: web.Request) -> web.Response:
        """The texts, or the hashes where these are what is kept."""
        return json_response(_shown(await self._kept(request)))

    async def delete(self, request: web.Request) -> web.Response:
        """Delete it before its time."""
        kept = await self._kept(request)
        if not await self._gateway.texts.delete(kept.request):  # somebody was quicker
            raise RequestFailed(NOT_KEPT)
        return json_response({"id": kept.request, "object": "request.text", "deleted": True})

    async def _kept(self, request: web.Request) -> Kept:
        """Raises `RequestFailed` as for an unknown request if it is another tenant's."""
        request_id, tenant = request.match_info["id"], request[TENANT]
        gateway = self._gateway
        operator = gateway.access.is_operator(tenant)
        kept = await gateway.texts.find(request_id)
        if kept is not None and (operator or kept.tenant == tenant):
            return kept
        record = await gateway.inquiries.find(request_id, tenant, any_tenant=operator)
        raise RequestFailed(NOT_KEPT if record.state == "done" else RUNNING)


def _shown(kept: Kept) -> dict[str, object]:
    return {
        "id": kept.request,
        "object": "request.text",
        "tenant": kept.tenant,
        "model": kept.model,
        "created": kept.created,
        "kept": "hashes" if kept.hashed else "texts",
        "kept_until": kept.until,
        "prompts": kept.prompts,
        "messages": kept.messages,
        "outputs": kept.outputs,
    }
