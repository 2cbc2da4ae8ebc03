"""What doors answer, as OpenAPI has it: schemas by name, errors by status, events of streams."""

from collections.abc import Mapping
from typing import Any, get_args

from plancha.messages import FinishReason
from plancha.record import Outcome, State
from plancha.startup import Phase
from plancha_transports.asks import GENERATE_FIELDS
from plancha_transports.failures import TYPES
from plancha_transports.fields import Schema, label

STRING = {"type": "string"}
COUNT = {"type": "integer", "minimum": 0}
NUMBER = {"type": "number"}
BOOLEAN = {"type": "boolean"}
NAME_OR_NULL = {"type": ["string", "null"]}

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


def reference(name: str) -> Schema:
    """To a schema by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


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


def _object(**properties: Schema) -> Schema:
    """All of these, and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _one_of(literal: Any) -> Schema:
    return {"enum": list(get_args(literal))}


def _optional(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _without(schema: Schema, *names: str) -> Schema:
    """`schema` with these properties optional."""
    return {**schema, "required": [name for name in schema["required"] if name not in names]}


ERROR = _object(
    message=STRING,
    type={"enum": ["invalid_request_error", *sorted(set(TYPES.values()))]},
    param=NAME_OR_NULL,
    code=NAME_OR_NULL,
)
LATE_ERROR = _without(
    _object(
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

USAGE = _object(input_tokens=COUNT, cached_tokens=COUNT, output_tokens=COUNT)
OPENAI_USAGE = _object(
    prompt_tokens=COUNT,
    completion_tokens=COUNT,
    total_tokens=COUNT,
    prompt_tokens_details=_object(cached_tokens=COUNT),
)
END = {"enum": [reason for reason in get_args(FinishReason) if reason != "error"]}
PROGRESS = {"status": _one_of(State), "outcome": _optional(_one_of(Outcome))}

TEXT_LOGPROBS = _object(
    tokens=_list(STRING),
    token_logprobs=_list({"type": ["number", "null"]}),
    top_logprobs=_list(_optional({"type": "object", "additionalProperties": NUMBER})),
    text_offset=_list(COUNT),
)
_TOKEN = {"token": STRING, "bytes": _optional(_list(COUNT)), "logprob": NUMBER}
CHAT_LOGPROBS = _object(
    content=_list(_object(**_TOKEN, top_logprobs=_list(_object(**_TOKEN)))),
    refusal={"type": "null"},
)


def _openai_answer(name: str, choice: Schema) -> Schema:
    return _object(
        id=STRING,
        request_id=STRING,
        object={"const": name},
        created=COUNT,
        model=STRING,
        choices=_list(choice),
        usage=reference("OpenAIUsage"),
    )


def _openai_chunk(name: str, choice: Schema) -> Schema:
    whole = _openai_answer(name, choice)
    properties = {**whole["properties"], "usage": _optional(reference("OpenAIUsage"))}
    return _without({**whole, "properties": properties}, "usage")


def _text_choice(end: Schema) -> Schema:
    logprobs = _optional(TEXT_LOGPROBS)
    return _object(index=COUNT, text=STRING, logprobs=logprobs, finish_reason=end)


def _chat_choice(name: str, message: Schema, end: Schema) -> Schema:
    logprobs = _optional(CHAT_LOGPROBS)
    return _object(index=COUNT, **{name: message}, logprobs=logprobs, finish_reason=end)


_ASSISTANT = _object(role={"const": "assistant"}, content=STRING, refusal={"type": "null"})
_DELTA = _without(_object(role={"const": "assistant"}, content=STRING), "role", "content")
_SPAN: Mapping[str, Schema] = {"from_s": NUMBER, "to_s": NUMBER, "steps": COUNT}


def _happened(event: str, **properties: Schema) -> Schema:
    return _object(event={"const": event}, at_s=NUMBER, **properties)


TRACED = {
    "oneOf": [
        _happened("accepted"),
        _without(
            _object(
                event={"const": "waiting"},
                reason=STRING,
                **_SPAN,
                needs_blocks=COUNT,
                available_blocks=COUNT,
                overtaken=COUNT,
            ),
            *("needs_blocks", "available_blocks", "overtaken"),
        ),
        _happened("joined", cached_tokens=COUNT),
        _happened("first_token"),
        _happened("preempted", reason=STRING, kept=BOOLEAN),
        _happened("evicted", kept=BOOLEAN),
        _happened("resumed", computed_tokens=COUNT),
        _object(event={"const": "omitted"}, entries=COUNT, **_SPAN),
        _without(_happened("ended", outcome=_one_of(FinishReason), code=NAME_OR_NULL), "code"),
    ]
}
TRACE = _without(
    _object(
        id=STRING,
        object={"const": "request.trace"},
        tenant=STRING,
        tier={"type": "integer"},
        age_s=NUMBER,
        sequences=_list(
            _without(
                _object(
                    prompt=COUNT,
                    choice=COUNT,
                    state={"enum": ["waiting", "running", "ended"]},
                    reason=STRING,
                    position={"type": "integer", "minimum": 1},
                    position_of_all={"type": "integer", "minimum": 1},
                    prompt_tokens=COUNT,
                    computed_tokens=COUNT,
                    output_tokens=COUNT,
                    history=_list(TRACED),
                ),
                *("reason", "position", "position_of_all", "computed_tokens"),
            )
        ),
    ),
    *("tenant", "tier"),
)
_ABOUT = {"id": STRING, "server_id": STRING}


def _kept(what: str, prompt: Schema, messages: Schema, output: Schema = STRING) -> Schema:
    return _object(
        id=STRING,
        object={"const": "request.text"},
        tenant=STRING,
        model=STRING,
        created=COUNT,
        kept={"const": what},
        kept_until=_optional(COUNT),
        prompts=_list(prompt),
        messages=_optional(messages),
        outputs=_list(output),
    )


_SENT = {"anyOf": [STRING, _list(COUNT)]}
_HASH = {"type": "string", "pattern": "^hmac-sha256:[0-9a-f]{64}$"}
_HASHES = _kept("hashes", _HASH, _HASH, _HASH)


def _message(kind: str, **properties: Schema) -> Schema:
    return _object(type={"const": kind}, **properties)


SCHEMAS: Mapping[str, Schema] = {
    "Error": _object(error=ERROR),
    "LateError": _object(error=LATE_ERROR),
    "Usage": USAGE,
    "OpenAIUsage": OPENAI_USAGE,
    "Completion": _openai_answer("text_completion", _text_choice(END)),
    "CompletionChunk": _openai_chunk("text_completion", _text_choice(_optional(END))),
    "ChatCompletion": _openai_answer("chat.completion", _chat_choice("message", _ASSISTANT, END)),
    "ChatCompletionChunk": _openai_chunk(
        "chat.completion.chunk", _chat_choice("delta", _DELTA, _optional(END))
    ),
    "CompletionEvent": {"anyOf": [reference("CompletionChunk"), reference("LateError")]},
    "ChatCompletionEvent": {"anyOf": [reference("ChatCompletionChunk"), reference("LateError")]},
    "TokenEvent": _object(id=STRING, index=COUNT, token=COUNT, text=STRING),
    "DoneEvent": _object(
        id=STRING,
        request_id=STRING,
        model=STRING,
        text=STRING,
        finish_reason=END,
        usage=reference("Usage"),
    ),
    "ErrorEvent": _object(id=STRING, error=LATE_ERROR),
    "Model": _object(id=STRING, object={"const": "model"}, created=COUNT, owned_by=STRING),
    "ModelList": _object(object={"const": "list"}, data=_list(reference("Model"))),
    "RequestStatus": _object(
        id=STRING,
        request_id=STRING,
        object={"const": "request"},
        model=STRING,
        created=COUNT,
        **PROGRESS,
    ),
    "RequestUsage": _object(id=STRING, **USAGE["properties"], **PROGRESS),
    "RequestText": {"anyOf": [_kept("texts", _SENT, _list({"type": "object"})), _HASHES]},
    "DeletedText": _object(id=STRING, object={"const": "request.text"}, deleted={"const": True}),
    "RequestTrace": TRACE,
    "Health": _without(_object(status=STRING, reason=STRING), "reason"),
    "Startup": _object(
        status=STRING,
        reason=STRING,
        phase=_one_of(Phase),
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
            _message("tokens", id=STRING, index=COUNT, tokens=_list(COUNT), text=STRING),
            _message("done", **_ABOUT, text=STRING, finish_reason=END, usage=reference("Usage")),
            _without(
                _message("error", id=NAME_OR_NULL, server_id=STRING, error=LATE_ERROR), "server_id"
            ),
            _without(_message("cancelled", **_ABOUT, usage=reference("Usage")), "server_id"),
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
