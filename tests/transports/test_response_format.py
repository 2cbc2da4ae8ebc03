"""How `response_format` is read, and what is said of one that is wrong."""

from typing import Any

import orjson
import pytest

from plancha.failure import RequestFailed
from plancha_transports.response_format import (
    ANY_OBJECT,
    MOST_LEVELS,
    MOST_SCHEMA_BYTES,
    response_format,
)

SCHEMA = {"type": "object", "properties": {"z": {"type": "null"}, "a": {"const": "ä"}}}
DOORS = ("/v1/completions", "/generate")


def named(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "it", "schema": schema, **more}}


def test_a_schema_is_kept_as_it_was_written() -> None:
    text = response_format("response_format", named(SCHEMA, strict=True, description="…"))
    assert text is not None
    assert orjson.loads(text) == SCHEMA
    assert text.index('"z"') < text.index('"a"')  # the order that outputs will have


def test_json_object_and_text() -> None:
    assert response_format("response_format", {"type": "json_object"}) == ANY_OBJECT
    assert response_format("response_format", {"type": "text"}) is None


def nested(levels: int) -> Any:
    schema: Any = {}
    for _ in range(levels - 1):
        schema = {"items": schema}
    return schema


def padded(length: int) -> dict[str, str]:
    return {"title": "x" * (length - len('{"title":""}'))}


def test_size_and_nesting_have_limits() -> None:
    for schema in (nested(MOST_LEVELS), padded(MOST_SCHEMA_BYTES)):
        assert response_format("response_format", named(schema)) is not None
    for schema in (nested(MOST_LEVELS + 1), nested(1000), padded(MOST_SCHEMA_BYTES + 1)):
        with pytest.raises(RequestFailed) as refused:
            response_format("response_format", named(schema))
        assert refused.value.failure.param == "response_format.json_schema.schema"
        assert len(refused.value.failure.message) < 200


@pytest.mark.parametrize(
    ("value", "param", "right"),
    [
        ("json_object", "response_format", "an object"),
        ([], "response_format", "an object"),
        ({}, "response_format.type", '"json_schema"'),
        ({"type": "xml"}, "response_format.type", '"json_object"'),
        ({"type": ["text"]}, "response_format.type", '"text"'),
        ({"type": "json_object", "schema": {}}, "response_format.schema", "no field"),
        ({"type": "text", "json_schema": {}}, "response_format.json_schema", "no field"),
        ({"type": "json_schema"}, "response_format.json_schema", "missing"),
        (
            {"type": "json_schema", "json_schma": {}},
            "response_format.json_schma",
            "mean response_format.json_schema?",
        ),
        ({"type": "json_schema", "json_schema": 1}, "response_format.json_schema", "an object"),
        (
            {"type": "json_schema", "json_schema": {"name": "x"}},
            "response_format.json_schema.schema",
            "missing",
        ),
        (
            {"type": "json_schema", "json_schema": {"schema": {}}},
            "response_format.json_schema.name",
            "missing",
        ),
        (named({}, name="a b"), "response_format.json_schema.name", "dashes"),
        (named({}, name="a" * 65), "response_format.json_schema.name", "64"),
        (named(True), "response_format.json_schema.schema", "an object"),
        (named([]), "response_format.json_schema.schema", "an object"),
        (named({}, strict="yes"), "response_format.json_schema.strict", "true or false"),
        (named({}, description=1), "response_format.json_schema.description", "a string"),
        (
            named({}, shema={}),
            "response_format.json_schema.shema",
            "mean response_format.json_schema.schema?",
        ),
    ],
)
async def test_what_is_wrong_is_named(
    serve: Any, emits: Any, value: Any, param: str, right: str
) -> None:
    async with serve(emits(65)) as server:
        for door in DOORS:
            body = {"prompt": "x", "response_format": value}
            status, error = await server.refusal(door, body)
            assert (status, error["param"]) == (400, param)
            assert right in error["message"]


async def test_text_and_null_ask_for_nothing(serve: Any, emits: Any) -> None:
    async with serve(emits(65)) as server:
        for nothing in (None, {"type": "text"}):
            body = {"prompt": "x", "response_format": nothing}
            assert (await server.post("/v1/completions", body))[0] == 200


async def test_an_executor_without_grammars_is_never_asked_for_one(serve: Any, says: Any) -> None:
    async with serve(says("{}")) as server:
        for door in DOORS:
            body = {"prompt": "x", "response_format": {"type": "json_object"}}
            status, error = await server.refusal(door, body)
            assert (status, error["param"]) == (400, "response_format")
            assert error["code"] == "unsupported_parameter"


@pytest.mark.parametrize("field", [{"ignore_eos": True}, {"min_tokens": 3}])
async def test_who_asks_for_an_end_of_its_own_cannot_have_a_schema(
    serve: Any, says: Any, field: dict[str, Any]
) -> None:
    async with serve(says("{}")) as server:
        body = {"prompt": "x", "response_format": {"type": "json_object"}, **field}
        status, error = await server.refusal("/v1/completions", body)
        assert (status, error["param"]) == (400, next(iter(field)))
