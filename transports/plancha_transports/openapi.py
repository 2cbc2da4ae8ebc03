"""`/openapi.json`: every door in words a program can read (OpenAPI 3.1).

What requests may hold is taken from the tables that check them; a test compares the rest with the
doors there are and with what they answer.
"""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import Any

from aiohttp import web

from plancha.gateway import Gateway
from plancha_transports.asks import GENERATE_FIELDS, chat_fields, completion_fields
from plancha_transports.failures import json_response
from plancha_transports.fields import Schema
from plancha_transports.openapi_answers import RESPONSES, SCHEMAS, answer, errors, events
from plancha_transports.options import HttpOptions
from plancha_transports.request_ids import LABEL_HEADER
from plancha_transports.timeouts import TIMEOUT_HEADER, timeout
from plancha_transports.trace_schema import ABOUT_TRACES

Operation = dict[str, Any]

ABOUT = """\
An LLM server with OpenAI's API and a few doors of its own. Fields that are not described here are
refused, and null means the same as leaving a field out, except where a schema does not allow it.
"""

REFUSED = (401, 403)
"""Who may not call at all: no key that is known; a Host or Origin that is not allowed."""

NOT_READY = (503,)
BODY = (400, 408, 413, 415)
GENERATION = (404, 429, 499, 500, 504)
"""404: the model does not exist."""


class OpenAPIDoor:
    """`GET /openapi.json`."""

    def __init__(self, gateway: Gateway, options: HttpOptions) -> None:
        self._gateway = gateway
        self._options = options

    async def document(self, request: web.Request) -> web.Response:
        """The document; it says whether a key is needed at the time."""
        needs_key = self._gateway.access.anonymous is None
        return json_response(document(self._options, needs_key=needs_key))


@cache
def document(options: HttpOptions, *, needs_key: bool) -> Schema:
    """The whole document."""
    bearer: dict[str, list[str]] = {"bearer": []}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Plancha",
            "version": version("plancha"),
            "description": ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [bearer] if needs_key else [bearer, {}],
        "paths": {**_generation(options), **_models(), **_requests(), **_about_the_server()},
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": SCHEMAS,
            "responses": RESPONSES,
        },
    }


def _generation(options: HttpOptions) -> Mapping[str, Any]:
    generate = GENERATE_FIELDS.schema()
    generate["anyOf"] = [{"required": ["prompt"]}, {"required": ["messages"]}]
    return {
        "/generate": {
            "post": _ask(
                "generate",
                "Answer one prompt or one chat, one event a token",
                generate,
                {
                    "200": answer(
                        "The output.",
                        events(message="TokenEvent", done="DoneEvent", error="ErrorEvent"),
                    )
                },
            )
        },
        "/v1/completions": {
            "post": _ask(
                "completions",
                "Continue prompts, as OpenAI's API does",
                completion_fields(options.max_n).schema(),
                {
                    "200": answer(
                        "The outputs.", "Completion", events("[DONE]", message="CompletionEvent")
                    )
                },
            )
        },
        "/v1/chat/completions": {
            "post": _ask(
                "chat",
                "Answer a chat, as OpenAI's API does",
                chat_fields(options.max_n).schema(),
                {
                    "200": answer(
                        "Answers.",
                        "ChatCompletion",
                        events("[DONE]", message="ChatCompletionEvent"),
                    )
                },
            )
        },
        "/v1/stream": {
            "get": {
                "operationId": "stream",
                "summary": "A WebSocket: many requests side by side, and their tokens",
                "description": STREAM,
                "responses": {
                    "101": {"description": "The WebSocket is open."},
                    **errors(400, *REFUSED, 426),
                },
            }
        },
    }


STREAM = """\
Connect with an upgrade to WebSocket. A browser, which cannot send an Authorization header, offers
two subprotocols instead: `plancha`, and `key.` followed by its key in base64url without padding.

Every message is one JSON object as text. To the server: a GenerateMessage for each request, with an
`id` of your choice that no running request of this socket has, or a CancelMessage. From the server:
`queued`, then `token` messages (`tokens` when the reader lags), and exactly one of `done`, `error`
and `cancelled` for each request. See the schema SocketMessage.
"""


LIVE = """\
Cheap to ask twice a second; an answer is up to a quarter of a second old. Counters grow from the
worker's start, so rates are the difference of two answers over that of their `at_s`; an `at_s` that
is less than before means a new worker.

Operators are told of everything (`scope` is "all"). A tenant is told of its own (`scope` is
"tenant"); of the others only how full pool and batch are, in twentieths: `used_share`.

`kv.map` is pairs of a code and how many cells in a row have it; a cell is every `map_stride`-th
block. Codes: 0 free, 1 cached (content that can be found, held by nobody), 2 other (for operators:
held by several tenants), 3 + 2i held by one sequence of `tenants[i]`, 4 + 2i by several of its
sequences. A tenant's map does not tell where its blocks are: its own come first.

Tokens of a sequence are its prompt and output together. `recent` quantiles are of the last
`window_s` seconds at most: null where there was nothing.
"""

PAGE_FILE: Mapping[str, Any] = {
    "description": "The file.",
    "content": {"*/*": {"schema": {"type": "string"}}},
}
UNCHANGED = {"description": "As it was: its ETag was in If-None-Match."}


def _models() -> Mapping[str, Any]:
    return {
        "/v1/models": {
            "get": {
                "operationId": "models",
                "summary": "The models that can be asked now",
                "responses": {
                    "200": answer("A list.", "ModelList"),
                    **errors(400, *REFUSED),
                },
            }
        },
        "/v1/models/{model}": {
            "get": {
                "operationId": "model",
                "summary": "One of them",
                "parameters": [_path_parameter("model", "Its name, slashes and all.")],
                "responses": {
                    "200": answer("The model.", "Model"),
                    **errors(400, *REFUSED, 404),
                },
            }
        },
    }


def _requests() -> Mapping[str, Any]:
    named = [_path_parameter("id", "Our id of the request: the header Plancha-Request-Id.")]
    return {
        "/v1/requests/{id}": {
            "get": {
                "operationId": "requestStatus",
                "summary": "How a request of yours is doing",
                "parameters": named,
                "responses": {
                    "200": answer("Its state.", "RequestStatus"),
                    **errors(400, *REFUSED, 404, *NOT_READY),
                },
            }
        },
        "/v1/requests/{id}/usage": {
            "get": {
                "operationId": "requestUsage",
                "summary": "What it cost so far",
                "parameters": named,
                "responses": {
                    "200": answer("Tokens.", "RequestUsage"),
                    **errors(400, *REFUSED, 404, *NOT_READY),
                },
            }
        },
        "/v1/requests/{id}/trace": {
            "get": {
                "operationId": "requestTrace",
                "summary": "Why it waits, or waited: the planner's word at each step",
                "description": ABOUT_TRACES,
                "parameters": named,
                "responses": {
                    "200": answer("What became of each of its sequences.", "RequestTrace"),
                    **errors(400, *REFUSED, 404, *NOT_READY),
                },
            }
        },
        "/v1/requests/{id}/cancel": {
            "post": {
                "operationId": "cancelRequest",
                "summary": "Cancel it; over already: nothing happens",
                "parameters": named,
                "responses": {
                    "200": answer("Its state.", "RequestStatus"),
                    **errors(400, *REFUSED, 404, *NOT_READY),
                },
            }
        },
        "/v1/requests/{id}/text": {
            "get": {
                "operationId": "requestText",
                "summary": "What is kept of its prompts and outputs, by its tenant's setting",
                "parameters": named,
                "responses": {
                    "200": answer("Texts or hashes.", "RequestText"),
                    **errors(400, *REFUSED, 404, *NOT_READY),
                },
            },
            "delete": {
                "operationId": "deleteRequestText",
                "summary": "Delete that before its time",
                "parameters": named,
                "responses": {
                    "200": answer("It is gone.", "DeletedText"),
                    **errors(400, *REFUSED, 404, *NOT_READY),
                },
            },
        },
    }


def _about_the_server() -> Mapping[str, Any]:
    return {
        "/health/live": {
            "get": {
                "operationId": "live",
                "summary": "Whether the process answers",
                "security": [],
                "responses": {"200": answer("It does.", "Health"), **errors(403)},
            }
        },
        "/health/ready": {
            "get": {
                "operationId": "ready",
                "summary": "Whether requests are taken and steps go on",
                "security": [],
                "responses": {
                    "200": answer("They are.", "Health"),
                    "503": answer("Not now; it says why.", "Health"),
                    **errors(403),
                },
            }
        },
        "/health/startup": {
            "get": {
                "operationId": "startup",
                "summary": "Whether the model has been loaded",
                "security": [],
                "responses": {
                    "200": answer("It has.", "Startup"),
                    "503": answer("Not yet; it says how far it is.", "Startup"),
                    **errors(403),
                },
            }
        },
        "/v1/live": {
            "get": {
                "operationId": "liveView",
                "summary": "How the worker looks at this moment: pool, batch, tenants, counters",
                "description": LIVE,
                "responses": {
                    "200": answer("A snapshot.", "Live"),
                    **errors(400, *REFUSED, *NOT_READY),
                },
            }
        },
        "/": {
            "get": {
                "operationId": "page",
                "summary": "A page: a playground, and what /v1/live tells as pictures",
                "security": [],
                "responses": {"200": PAGE_FILE, "304": UNCHANGED, **errors(403)},
            }
        },
        "/page/{file}": {
            "get": {
                "operationId": "pageFile",
                "summary": "Its scripts and styles",
                "security": [],
                "parameters": [_path_parameter("file", "Its name.")],
                "responses": {"200": PAGE_FILE, "304": UNCHANGED, **errors(403, 404)},
            }
        },
        "/metrics": {
            "get": {
                "operationId": "metrics",
                "summary": "Figures of the process, for Prometheus; where there are keys, for those"
                " of operators",
                "responses": {
                    "200": {
                        "description": "The text format, version 0.0.4.",
                        "content": {"text/plain": {"schema": {"type": "string"}}},
                    },
                    **errors(400, 401, 403),
                },
            }
        },
        "/openapi.json": {
            "get": {
                "operationId": "openapi",
                "summary": "This document",
                "security": [],
                "responses": {"200": answer("The document.", "Document"), **errors(403)},
            }
        },
    }


def _ask(operation_id: str, summary: str, body: Schema, well: Mapping[str, Any]) -> Operation:
    return {
        "operationId": operation_id,
        "summary": summary,
        "parameters": [
            {
                "name": LABEL_HEADER,
                "in": "header",
                "description": "Your own name for the request, unless the body has a request_id:"
                " 1 to 128 visible ASCII characters; anything else is passed over.",
                "schema": {"type": "string"},
            },
            {
                "name": TIMEOUT_HEADER,
                "in": "header",
                "description": "As the body's timeout_s, which goes before it.",
                "schema": timeout.schema,
            },
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {**well, **errors(*BODY, *REFUSED, *GENERATION, *NOT_READY)},
    }


def _path_parameter(name: str, description: str) -> Mapping[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": {"type": "string", "minLength": 1},
    }
