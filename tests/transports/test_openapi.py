"""/openapi.json says what is so: of doors, of fields, and of answers."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jsonschema_rs
import orjson
import pytest
from aiohttp import web
from openapi_spec_validator import OpenAPIV31SpecValidator

from plancha.failure import RequestFailed
from plancha.gateway import Gateway
from plancha_transports.asks import (
    GENERATE_FIELDS,
    chat_ask,
    chat_fields,
    completion_ask,
    completion_fields,
    generate_ask,
)
from plancha_transports.failures import STATUS
from plancha_transports.field_table import FieldTable
from plancha_transports.fields import Check
from plancha_transports.http import application
from plancha_transports.metrics import Metrics
from plancha_transports.openapi import document
from plancha_transports.openapi_answers import ERRORS
from plancha_transports.options import HttpOptions
from plancha_transports.request_bodies import BodyReader
from plancha_transports.stream_door import StreamDoor

OPTIONS = HttpOptions()
CHAT = [{"role": "user", "content": "Hi?"}]
FIELDS: Mapping[str, FieldTable] = {
    "/generate": GENERATE_FIELDS,
    "/v1/completions": completion_fields(OPTIONS.max_n),
    "/v1/chat/completions": chat_fields(OPTIONS.max_n),
}
ASKS: Mapping[str, Callable[[Any], Any]] = {
    "/generate": lambda body: generate_ask(body, None),
    "/v1/completions": lambda body: completion_ask(body, None, OPTIONS),
    "/v1/chat/completions": lambda body: chat_ask(body, None, OPTIONS),
}
EVERY_FIELD = [
    (path, name)
    for path, fields in FIELDS.items()
    for name in sorted({*fields.checks, *fields.defaults_only})
]


@pytest.fixture(scope="module")
def described() -> Any:
    return as_read(document(OPTIONS, needs_key=False))


def as_read(value: Any) -> Any:
    return orjson.loads(orjson.dumps(value))


def body_schema(described: Any, path: str) -> Any:
    content = described["paths"][path]["post"]["requestBody"]["content"]
    return content["application/json"]["schema"]


def test_the_document_is_valid_openapi(described: Any) -> None:
    errors = OpenAPIV31SpecValidator(described).iter_errors()
    assert [error.message for error in errors] == []


async def test_it_is_served_and_names_the_key_only_where_one_is_needed(
    serve: Any, says: Any
) -> None:
    async with serve(says("Hi")) as server:
        status, found = await server.get("/openapi.json")
    assert status == 200
    assert found["security"] == [{"bearer": []}, {}]
    assert document(OPTIONS, needs_key=True)["security"] == [{"bearer": []}]


async def test_every_door_is_described_and_no_other(described: Any) -> None:
    gateway, bodies = Gateway("tiny"), BodyReader(OPTIONS)
    stream_door, metrics = StreamDoor(gateway, OPTIONS, bodies), Metrics(gateway)
    app = application(gateway, stream_door, OPTIONS, bodies, metrics)
    doors = {
        (route.method, route.resource.canonical)
        for route in app.router.routes()
        if isinstance(route, web.ResourceRoute | web.AbstractRoute)
        and route.resource is not None
        and route.method != "HEAD"
    }
    operations = {
        (method.upper(), path) for path, methods in described["paths"].items() for method in methods
    }
    assert operations == doors


def test_every_status_of_a_failure_is_described() -> None:
    assert set(ERRORS) == {*STATUS.values(), 426}


@pytest.mark.parametrize("path", FIELDS)
def test_every_field_is_described_and_no_other(described: Any, path: str) -> None:
    fields = FIELDS[path]
    schema = body_schema(described, path)
    assert set(schema["properties"]) == {*fields.checks, *fields.defaults_only}
    assert schema["additionalProperties"] is False
    for name, each in fields.checks.items():
        assert isinstance(each, Check), f"{name} needs a schema: see plancha_transports.fields"
        assert each.schema, name


@pytest.mark.parametrize(("path", "name"), EVERY_FIELD)
def test_what_the_schema_lets_through_is_what_the_door_lets_through(
    described: Any, path: str, name: str
) -> None:
    schema = body_schema(described, path)["properties"][name]
    validator = jsonschema_rs.validator_for({**schema, "components": described["components"]})
    for value in (*VALUES, *edges(schema)):
        valid = validator.is_valid(value)
        assert taken(path, name, value) == valid, f"{name} = {value!r}: by its schema {valid}"


def taken(path: str, name: str, value: Any) -> bool:
    """Whether a request that has nothing else wrong is let through."""
    body: dict[str, Any] = {"prompt": "x"}
    if path == "/v1/chat/completions":
        body = {"messages": CHAT}
    body |= NEEDED.get((path, name), NEEDED.get(name, {}))
    if name == "messages":
        body.pop("prompt", None)
    if name == "best_of" and path != "/generate" and type(value) is int and 1 <= value <= 128:
        body["n"] = value  # there it must be n
    try:
        ASKS[path]({**body, name: value})
    except RequestFailed as failed:
        missing = value is None and name in ("prompt", "messages")
        assert missing or failed.failure.param is not None
        assert missing or str(failed.failure.param).startswith(name), failed.failure
        return missing and path == "/generate"
    return True


NEEDED: Mapping[Any, dict[str, Any]] = {
    # What has to be there too, so that a value is right or wrong by itself.
    "stream_options": {"stream": True},
    "min_tokens": {"max_tokens": 2**31 - 1},
    ("/v1/completions", "max_tokens"): {"echo": True},
    ("/v1/chat/completions", "top_logprobs"): {"logprobs": True},
}

VALUES: tuple[Any, ...] = (
    *(None, True, False, "", "a", "1", "a b", "ü", "a\n", "\x7f", "x" * 128, "x" * 129),
    *(0, 1, -1, 2, 20, 21, 128, 129, -(2**63), 2**63, 2**64 - 1, 0.5, -0.5, 1e-300, 0.001),
    *([], [1], [-1], ["a"], [""], ["a", 1], [1, "a"], [[]], [[1]], [[1], ["a"]], ["x"] * 17),
    *([True], [0.5], [None], [1] * 129, [{}], [[1], 1], ["text"]),
    *({}, {"a": 1}, {"a": "b"}, {"1": 1}, {"1": 100}, {"1": 100.5}, {"1": "1"}, {"01": 1}),
    *({"-1": 1}, {"": 1}, {"1": None}, {"9" * 18: 1}, {"9" * 19: 1}, {"type": "text"}),
    *({"include_usage": True}, {"include_usage": None}, {"include_usage": 1}, {"usage": True}),
    *({"include_obfuscation": False}, {"include_obfuscation": True}),
    *("none", "auto", "default", "required", ["audio"], [{"type": "function"}]),
    CHAT,
    [{"role": "user"}],
    [{"role": "", "content": "x"}],
    [{"role": "user", "content": None}],
    [{"role": "user", "content": "x", "name": None, "refusal": None, "tool_calls": []}],
    [{"role": "user", "content": "x", "tool_calls": [1]}],
    [{"role": "user", "content": "x", "more": 1}],
    [{"role": "user", "content": []}],
    [{"role": "user", "content": [{"type": "text", "text": "x"}]}],
    [{"role": "user", "content": [{"type": "text", "text": None}]}],
    [{"role": "user", "content": [{"type": "text", "text": "x", "more": 1}]}],
    [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///"}}]}],
    [*CHAT, "x"],
)


def edges(schema: Any) -> Iterator[Any]:
    """On and beside every bound that the schema names."""
    for key in ("minimum", "maximum"):
        if key in schema:
            yield from (schema[key], schema[key] - 1, schema[key] + 1)
            if abs(schema[key]) < 1000:
                yield from (schema[key] - 0.25, schema[key] + 0.25)


@pytest.mark.parametrize("path", FIELDS)
def test_a_default_does_what_leaving_the_field_out_does(described: Any, path: str) -> None:
    body = {"prompt": "x"} if path != "/v1/chat/completions" else {"messages": CHAT}
    without = ASKS[path](body)
    defaults = {
        name: schema["default"]
        for name, schema in body_schema(described, path)["properties"].items()
        if "default" in schema
    }
    assert len(defaults) > 10
    for name, default in defaults.items():
        assert ASKS[path]({**body, name: default}) == without, name


def checker(described: Any, name: str) -> Any:
    return jsonschema_rs.validator_for(
        {"$ref": f"#/components/schemas/{name}", "components": described["components"]}
    )


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/generate", {"prompt": "x"}),
        ("/v1/completions", {"prompt": "x", "logprobs": 2, "echo": True, "n": 2}),
        ("/v1/completions", {"prompt": "x", "stream_options": {"include_usage": True}}),
        ("/v1/chat/completions", {"messages": CHAT, "logprobs": True, "top_logprobs": 1}),
    ],
)
@pytest.mark.parametrize("failing", [frozenset(), frozenset({(0, 3)})], ids=["well", "broken off"])
async def test_every_event_of_a_stream_is_as_described(
    described: Any, serve: Any, emits: Any, chains: Any, path: str, body: Any, failing: Any
) -> None:
    executor = emits(*b"ABCDEF", failing=failing) if failing else chains()
    if failing:
        body = {key: value for key, value in body.items() if "logprobs" not in key}
    streamed = {**body, "max_tokens": 6} | ({"stream": True} if path != "/generate" else {})
    content = described["paths"][path]["post"]["responses"]["200"]["content"]
    kinds = content["text/event-stream"]["schema"]["anyOf"]
    async with serve(executor) as server:
        events = await server.events(path, streamed)
    assert len(events) > 3
    for name, data in events:
        named = [kind["properties"]["data"] for kind in kinds if is_named(kind, name)]
        assert any(is_as_described(described, each, data) for each in named), (name, data)


def is_named(kind: Any, name: str | None) -> bool:
    return bool(kind["properties"]["event"]["const"] == (name or "message"))


def is_as_described(described: Any, schema: Any, data: Any) -> bool:
    schema = {**schema.get("contentSchema", schema), "components": described["components"]}
    return jsonschema_rs.validator_for(schema).is_valid(data)


async def test_every_message_of_a_socket_is_as_described(
    described: Any, serve: Any, says: Any
) -> None:
    to_server = [
        {"type": "generate", "id": "a", "prompt": "x", "max_tokens": 4},
        {"type": "cancel", "id": "b"},
        {"type": "generate", "id": "c", "prompt": 5},
    ]
    assert checker(described, "GenerateMessage").is_valid(to_server[0])
    assert checker(described, "CancelMessage").is_valid(to_server[1])
    assert not checker(described, "GenerateMessage").is_valid(to_server[2])
    from_server = checker(described, "SocketMessage")
    kinds: list[str] = []
    async with (
        serve(says("Hello")) as server,
        server.session.ws_connect(server.url + "/v1/stream") as socket,
    ):
        for message in to_server:
            await socket.send_json(message)
        while not {"done", "error"} <= set(kinds):
            received = await socket.receive_json()
            assert from_server.is_valid(received), received
            kinds.append(received["type"])
    assert {"queued", "done", "error"} <= set(kinds)
