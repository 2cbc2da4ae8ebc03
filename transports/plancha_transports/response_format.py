"""`response_format`: JSON as the output, any object or by a schema. As in OpenAI's API."""

import re
from collections.abc import Mapping
from typing import Any

import orjson

from plancha.failure import invalid
from plancha_transports.field_table import FieldTable
from plancha_transports.fields import Check, boolean, check, string, table, wrong

MOST_SCHEMA_BYTES = 2**16
"""Of a schema written without white space."""

MOST_LEVELS = 64
"""Objects and lists in each other, in a schema."""

ANY_OBJECT = '{"type":"object"}'

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@check(type="string", pattern=f"^{NAME.pattern}$")
def _name(name: str, value: object) -> str:
    if not isinstance(value, str) or NAME.fullmatch(value) is None:
        raise wrong(name, value, "1 to 64 letters, digits, underscores and dashes")
    return value


@check(type="object")
def _schema(name: str, value: object) -> str:
    """As text. Whether it is a schema, and one that can be followed, is asked later."""
    try:
        text = orjson.dumps(table(name, value))
        too_deep = False
    except TypeError:  # what was read from JSON has no other way to fail
        text, too_deep = b"", True
    if len(text) > MOST_SCHEMA_BYTES:
        message = f"{name} is {len(text):,} bytes; it may be {MOST_SCHEMA_BYTES:,} at most."
        raise invalid(name, message)
    if too_deep or _is_deeper(value, MOST_LEVELS):
        raise invalid(name, f"{name} is nested over {MOST_LEVELS} levels deep.")
    return text.decode()


def _is_deeper(value: object, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    within = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deeper(each, levels - 1) for each in within)


JSON_SCHEMA = FieldTable(
    checks={
        "name": _name,
        "description": string,
        "schema": _schema.described("JSON Schema, of which most of draft 2020-12 is known."),
        "strict": boolean.described("Any value does nothing: the output always follows."),
    },
    required=("name", "schema"),
)


def _of_type(kind: str, **more: Check[Any]) -> FieldTable:
    def take(name: str, value: object) -> str:
        return kind  # it was looked up by this

    checks: dict[str, Check[Any]] = {
        "type": Check(take, {"type": "string", "enum": [kind]}),
        **more,
    }
    return FieldTable(checks=checks, required=tuple(checks))


TYPES: Mapping[str, FieldTable] = {
    "text": _of_type("text"),
    "json_object": _of_type("json_object"),
    "json_schema": _of_type("json_schema", json_schema=JSON_SCHEMA.check()),
}


@check(anyOf=[each.schema() for each in TYPES.values()])
def response_format(name: str, value: object) -> str | None:
    """The JSON schema that the output must follow, as text; None: any text will do."""
    given = table(name, value)
    kind = given.get("type")
    if not isinstance(kind, str) or kind not in TYPES:
        raise wrong(f"{name}.type", kind, '"text", "json_object" or "json_schema"')
    found = TYPES[kind].read(given, f"{name}.")
    if kind == "text":
        return None
    return ANY_OBJECT if kind == "json_object" else str(found["json_schema"]["schema"])
