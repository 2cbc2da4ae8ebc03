"""What doors answer, as OpenAPI has it: schemas by name, errors by status, events of streams."""

from collections.abc import Mapping
from typing import Any, get_args

from plancha.messages import FinishReason
from plancha.record import Outcome, State
from plancha.startup import Phase
from plancha_transports.asks import GENERATE_FIELDS
from plancha_transports.failures import TYPES
from plancha_transports.fields import Schema, label
from plancha_transports.live_schema import LIVE
from plancha_transports.schema_parts import (
    COUNT,
    NAME_OR_NULL,
    NUMBER,
    STRING,
    list_of,
    object_of,
    one_of,
    optional,
    reference,
    without,
)
from plancha_transports.trace_schema import TRACE

ERRORS: Mapping[int, str] = {
    400: "The request is wrong; the error names the field.",
    401: "A key is needed, and none that is known was given.",
    403: "Not allowed: for this tenant, or by the request's Host or Origin.",
    404: "There is no such thing, or not for this tenant.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body is not JSON, or it is compressed.",
    426: "This is a WebSocket.",
    429: "A queue is full or a quota used up; Retry-After says when to try again.",
    499: "The request was cancelled by a call of its own.",
    500: "The engine failed.",
    503: "Not now: loading, draining, or waited too long; Retry-After says when to try again.",
    504: "The request's own deadline has passed.",
}

RETRIED = (429, 503)


def answer(description: str, *contents: Mapping[str, Any] | str) -> Mapping[str, Any]:
    """A response with a JSON body of the schema named, or an event stream, or either."""
    content: dict[str, Any] = {}
    for each in contents:
        if isinstance(each, str):
            content["application/json"] = {"schema": reference(each)}
        else:
            content |= each
    return {"description": description, "content": content}


def events(*last: str, **named: str) -> Mapping[str, Any]:
    """An event stream: schemas of the JSON in `data` by the event's name; `last` are no JSON.

    The schema is of one event, as OpenAPI 3.2 would have it under `itemSchema`. Events without a
    name are called "message", as browsers do.
    """
    kinds = [_event(name, _json(schema)) for name, schema in named.items()]
    kinds += [_event("message", {"const": data}) for data in last]
    return {"text/event-stream": {"schema": {"description": "One event.", "anyOf": kinds}}}


def _json(name: str) -> Schema:
    return {
        "type": "string",
        "contentMediaType": "application/json",
        "contentSchema": reference(name),
    }


def _event(name: str, data: Schema) -> Schema:
    return {
        "type": "object",
        "properties": {"event": {"const": name}, "data": data},
        "required": ["data"],
    }


def errors(*statuses: int) -> Mapping[str, Any]:
    """Responses by status."""
    return {str(status): {"$ref": f"#/components/responses/{status}"} for status in statuses}


ERROR = object_of(
    message=STRING,
    type={"enum": ["invalid_request_error", *sorted(set(TYPES.values()))]},
    param=NAME_OR_NULL,
    code=NAME_OR_NULL,
)
LATE_ERROR = without(
    object_of(
        **ERROR["properties"],
        retry_after_s={
            "type": "integer",
            "minimum": 1,
            "description": "Seconds, where a refusal by HTTP status has the header Retry-After.",
        },
    ),
    "retry_after_s",
)
"""In an event or a message."""

USAGE = object_of(input_tokens=COUNT, cached_tokens=COUNT, output_tokens=COUNT)
OPENAI_USAGE = object_of(
    prompt_tokens=COUNT,
    completion_tokens=COUNT,
    total_tokens=COUNT,
    prompt_tokens_details=object_of(cached_tokens=COUNT),
)
END = {"enum": [reason for reason in get_args(FinishReason) if reason != "error"]}
TIMES = {"created": COUNT, "finished": {"type": ["integer", "null"], "minimum": 0}}
PROGRESS = {"status": one_of(State), "outcome": optional(one_of(Outcome))}

TEXT_LOGPROBS = object_of(
    tokens=list_of(STRING),
    token_logprobs=list_of({"type": ["number", "null"]}),
    top_logprobs=list_of(optional({"type": "object", "additionalProperties": NUMBER})),
    text_offset=list_of(COUNT),
)
_TOKEN = {"token": STRING, "bytes": optional(list_of(COUNT)), "logprob": NUMBER}
CHAT_LOGPROBS = object_of(
    content=list_of(object_of(**_TOKEN, top_logprobs=list_of(object_of(**_TOKEN)))),
    refusal={"type": "null"},
)


def _openai_answer(name: str, choice: Schema) -> Schema:
    return object_of(
        id=STRING,
        request_id=STRING,
        object={"const": name},
        created=COUNT,
        model=STRING,
        choices=list_of(choice),
        usage=reference("OpenAIUsage"),
    )


def _openai_chunk(name: str, choice: Schema) -> Schema:
    whole = _openai_answer(name, choice)
    properties = {**whole["properties"], "usage": optional(reference("OpenAIUsage"))}
    return without({**whole, "properties": properties}, "usage")


def _text_choice(end: Schema) -> Schema:
    logprobs = optional(TEXT_LOGPROBS)
    return object_of(index=COUNT, text=STRING, logprobs=logprobs, finish_reason=end)


def _chat_choice(name: str, message: Schema, end: Schema) -> Schema:
    logprobs = optional(CHAT_LOGPROBS)
    return object_of(index=COUNT, **{name: message}, logprobs=logprobs, finish_reason=end)


_ASSISTANT = object_of(role={"const": "assistant"}, content=STRING, refusal={"type": "null"})
_DELTA = without(object_of(role={"const": "assistant"}, content=STRING), "role", "content")
_ABOUT = {"id": STRING, "server_id": STRING}


def _kept(what: str, prompt: Schema, messages: Schema, output: Schema = STRING) -> Schema:
    return object_of(
        id=STRING,
        object={"const": "request.text"},
        tenant=STRING,
        model=STRING,
        created=COUNT,
        kept={"const": what},
        kept_until=optional(COUNT),
        prompts=list_of(prompt),
        messages=optional(messages),
        outputs=list_of(output),
    )


_SENT = {"anyOf": [STRING, list_of(COUNT)]}
_HASH = {"type": "string", "pattern": "^hmac-sha256:[0-9a-f]{64}$"}
_HASHES = _kept("hashes", _HASH, _HASH, _HASH)


def _message(kind: str, **properties: Schema) -> Schema:
    return object_of(type={"const": kind}, **properties)


SCHEMAS: Mapping[str, Schema] = {
    "Error": object_of(error=ERROR),
    "LateError": object_of(error=LATE_ERROR),
    "Usage": USAGE,
    "OpenAIUsage": OPENAI_USAGE,
    "Completion": _openai_answer("text_completion", _text_choice(END)),
    "CompletionChunk": _openai_chunk("text_completion", _text_choice(optional(END))),
    "ChatCompletion": _openai_answer("chat.completion", _chat_choice("message", _ASSISTANT, END)),
    "ChatCompletionChunk": _openai_chunk(
        "chat.completion.chunk", _chat_choice("delta", _DELTA, optional(END))
    ),
    "CompletionEvent": {"anyOf": [reference("CompletionChunk"), reference("LateError")]},
    "ChatCompletionEvent": {"anyOf": [reference("ChatCompletionChunk"), reference("LateError")]},
    "TokenEvent": object_of(id=STRING, index=COUNT, token=COUNT, text=STRING),
    "DoneEvent": object_of(
        id=STRING,
        request_id=STRING,
        model=STRING,
        text=STRING,
        finish_reason=END,
        usage=reference("Usage"),
    ),
    "ErrorEvent": object_of(id=STRING, error=LATE_ERROR),
    "Model": object_of(id=STRING, object={"const": "model"}, created=COUNT, owned_by=STRING),
    "ModelList": object_of(object={"const": "list"}, data=list_of(reference("Model"))),
    "RequestStatus": object_of(
        id=STRING,
        request_id=STRING,
        object={"const": "request"},
        model=STRING,
        **TIMES,
        **PROGRESS,
    ),
    "RequestUsage": object_of(id=STRING, **USAGE["properties"], **PROGRESS, **TIMES),
    "RequestText": {"anyOf": [_kept("texts", _SENT, list_of({"type": "object"})), _HASHES]},
    "DeletedText": object_of(id=STRING, object={"const": "request.text"}, deleted={"const": True}),
    "RequestTrace": TRACE,
    "Live": LIVE,
    "Health": without(object_of(status=STRING, reason=STRING), "reason"),
    "Startup": object_of(
        status=STRING,
        reason=STRING,
        phase=one_of(Phase),
        percent={"type": ["integer", "null"], "minimum": 0, "maximum": 100},
    ),
    "Document": {"type": "object", "required": ["openapi", "info", "paths"]},
    "GenerateMessage": {
        **GENERATE_FIELDS.schema(),
        "properties": {
            "type": {"const": "generate"},
            "id": label.schema,
            **GENERATE_FIELDS.schema()["properties"],
        },
        "required": ["type", "id"],
    },
    "CancelMessage": _message("cancel", id=label.schema),
    "SocketMessage": {
        "oneOf": [
            _message("queued", **_ABOUT, request_id=STRING, model=STRING),
            _message("token", id=STRING, index=COUNT, token=COUNT, text=STRING),
            _message("tokens", id=STRING, index=COUNT, tokens=list_of(COUNT), text=STRING),
            _message("done", **_ABOUT, text=STRING, finish_reason=END, usage=reference("Usage")),
            without(
                _message("error", id=NAME_OR_NULL, server_id=STRING, error=LATE_ERROR), "server_id"
            ),
            without(_message("cancelled", **_ABOUT, usage=reference("Usage")), "server_id"),
        ]
    },
}

RETRY_AFTER = {"Retry-After": {"description": "Seconds.", "schema": COUNT}}

RESPONSES: Mapping[str, Any] = {
    str(status): {
        **answer(description, "Error"),
        **({"headers": RETRY_AFTER} if status in RETRIED else {}),
    }
    for status, description in ERRORS.items()
}
