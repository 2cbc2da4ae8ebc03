"""What can be asked without a prompt: health, models, and how a request is doing."""

import time

from aiohttp import web

from plancha.failure import Failure, RequestFailed
from plancha.gateway import Gateway
from plancha.links.inquiries import NOT_FOUND
from plancha.record import Record
from plancha.startup import STARTED
from plancha_transports.answers import usage
from plancha_transports.callers import TENANT
from plancha_transports.failures import json_response
from plancha_transports.request_ids import shown_id


class StatusDoors:
    """Answers from what the gateway knows, or another of the same worker does."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._created = int(time.time())  # of the model list, which has nothing better to say

    async def live(self, request: web.Request) -> web.Response:
        """The process answers; whether a model is loaded is not asked here."""
        return json_response({"status": "live"})

    async def ready(self, request: web.Request) -> web.Response:
        """200 while requests are taken and steps go on, else 503 with the reason."""
        gateway = self._gateway
        if gateway.state != "ready":
            return json_response({"status": gateway.state, "reason": gateway.reason}, 503)
        if gateway.stalled:
            return json_response({"status": "stalled", "reason": "engine_stalled"}, 503)
        if not gateway.ledger_writable:
            return json_response({"status": "refusing", "reason": "ledger_unavailable"}, 503)
        return json_response({"status": "ready", "reason": ""})

    async def startup(self, request: web.Request) -> web.Response:
        """503 until the model has been loaded, and how far that is."""
        gateway = self._gateway
        stage = STARTED if gateway.state == "ready" else gateway.stage
        started = stage == STARTED and gateway.state in ("ready", "draining")
        state = {"status": gateway.state, "reason": gateway.reason}
        how_far = {"phase": stage.phase, "percent": stage.percent}
        return json_response({**state, **how_far}, 200 if started else 503)

    async def models(self, request: web.Request) -> web.Response:
        """Those that the caller may use, as soon and as long as they can be asked."""
        models = self._gateway.models(request[TENANT])
        return json_response({"object": "list", "data": [self._model(name) for name in models]})

    async def model(self, request: web.Request) -> web.Response:
        """One entry of that list."""
        name = request.match_info["model"]
        if name not in self._gateway.models(request[TENANT]):
            message = "There is no such model here; GET /v1/models lists what there is."
            raise RequestFailed(Failure("not_found", message, "model", "model_not_found"))
        return json_response(self._model(name))

    async def request_status(self, request: web.Request) -> web.Response:
        """A request's state, by our id."""
        return json_response(_status(await self._record(request)))

    async def request_usage(self, request: web.Request) -> web.Response:
        """What it cost so far, and in all once it is done."""
        record = await self._record(request)
        times = {"created": record.created, "finished": record.finished}
        return json_response({"id": record.id, **usage(record), **_progress(record), **times})

    async def request_trace(self, request: web.Request) -> web.Response:
        """Why it waits or waited: to its owner, and to operators whosever it is."""
        request_id, tenant = _named(request)
        answer = await self._gateway.inquiries.ask_worker(
            "trace", request_id, tenant, any_tenant=self._gateway.access.is_operator(tenant)
        )
        if answer.content is None:
            raise RequestFailed(NOT_FOUND)
        return web.Response(body=answer.content, content_type="application/json")

    async def cancel_request(self, request: web.Request) -> web.Response:
        """Cancel it; over already: nothing to do. Its own client is told on its own connection."""
        return json_response(
            _status(await self._gateway.inquiries.find(*_named(request), cancel=True))
        )

    async def _record(self, request: web.Request) -> Record:
        """To operators whosever it is."""
        request_id, tenant = _named(request)
        any_tenant = self._gateway.access.is_operator(tenant)
        return await self._gateway.inquiries.find(request_id, tenant, any_tenant=any_tenant)

    def _model(self, name: str) -> dict[str, object]:
        return {
            "id": name,
            "object": "model",
            "created": self._created,
            "owned_by": "plancha",
        }


def _named(request: web.Request) -> tuple[str, str]:
    """Our id of a request, and whose it must be."""
    return request.match_info["id"], request[TENANT]


def _status(record: Record) -> dict[str, object]:
    return {
        "id": record.id,
        "request_id": shown_id(record),
        "object": "request",
        "model": record.model,
        "created": record.created,
        "finished": record.finished,
        **_progress(record),
    }


def _progress(record: Record) -> dict[str, object]:
    return {"status": record.state, "outcome": record.outcome}
