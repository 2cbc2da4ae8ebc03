"""How a failure looks to an HTTP client: a status, and OpenAI's error object."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import orjson
import structlog
from aiohttp import web

from plancha.failure import Failure, Kind, RequestFailed, engine_error

log = structlog.get_logger()

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

STATUS: Mapping[Kind, int] = {
    "invalid": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "slow": 408,
    "too_large": 413,
    "media_type": 415,
    "busy": 429,
    # Not a standard status; clients retry 409 and 5xx by themselves, and a cancel must stand.
    "cancelled": 499,
    "engine": 500,
    "unavailable": 503,
    "timeout": 504,
}

TYPES: Mapping[Kind, str] = {
    "busy": "rate_limit_error",
    "engine": "server_error",
    "unavailable": "server_error",
    "timeout": "server_error",
}

RETRY_AFTER_S: Mapping[Kind, int] = {"busy": 1, "unavailable": 5}

CLOSING = frozenset({"draining", "invalid_body"})
"""Codes after which a connection is of no use: what follows on it cannot be told from the body."""

CANCELLED = Failure("cancelled", "The request was cancelled.", None, "request_cancelled")


def error_object(failure: Failure) -> dict[str, Any]:
    """OpenAI's `{"error": …}`."""
    return _error(
        failure.message,
        TYPES.get(failure.kind, "invalid_request_error"),
        failure.param,
        failure.code,
    )


def late_error_object(failure: Failure) -> dict[str, Any]:
    """As `error_object`, where no header can say any more when trying again may do."""
    found = error_object(failure)
    retry_after_s = _retry_after_s(failure)
    if retry_after_s is not None:
        found["error"]["retry_after_s"] = retry_after_s
    return found


def json_response(data: object, status: int = 200) -> web.Response:
    """`data` as a JSON body."""
    return web.Response(body=orjson.dumps(data), status=status, content_type="application/json")


def failure_response(failure: Failure) -> web.Response:
    """The plain answer to a request that failed before any of its stream went out."""
    response = json_response(error_object(failure), STATUS[failure.kind])
    retry_after_s = _retry_after_s(failure)
    if retry_after_s is not None:
        response.headers["Retry-After"] = str(retry_after_s)
    if failure.kind == "unauthorized":
        response.headers["WWW-Authenticate"] = "Bearer"
    if failure.kind in ("too_large", "slow") or failure.code in CLOSING:
        response.force_close()
    return response


@web.middleware
async def failures_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Middleware: whatever a door raises becomes a status and an error object, and tells no more.

    A door raises only while its response has not been started.
    """
    try:
        return await handler(request)
    except RequestFailed as failed:
        return failure_response(failed.failure)
    except web.HTTPNotFound:
        message = f"There is nothing at {request.path[:80]!a}; try /v1/models."
        return error_response(404, "not_found", message)
    except web.HTTPMethodNotAllowed as refused:
        allowed = ", ".join(sorted(refused.allowed_methods))
        message = f"{request.method[:20]} is not allowed here; use {allowed}."
        response = error_response(405, "method_not_allowed", message)
        response.headers["Allow"] = allowed
        return response
    except web.HTTPException as refused:
        return error_response(refused.status, None, refused.reason)
    except ConnectionError:  # the client left as the first byte was due; nobody reads this
        return failure_response(engine_error())
    except Exception:
        log.exception("request_failed", door=door_of(request))
        return failure_response(engine_error())


def door_of(request: web.Request) -> str | None:
    """Which of our addresses it asks, with names in the place of what the client wrote there."""
    resource = request.match_info.route.resource
    return None if resource is None else resource.canonical


def error_response(status: int, code: str | None, message: str) -> web.Response:
    """The error object for what HTTP itself refuses."""
    return json_response(_error(message, "invalid_request_error", None, code), status)


def _retry_after_s(failure: Failure) -> int | None:
    return failure.retry_after_s or RETRY_AFTER_S.get(failure.kind)


def _error(message: str, kind: str, param: str | None, code: str | None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
