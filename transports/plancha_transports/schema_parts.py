"""What JSON schemas of answers are put together from."""

from typing import Any, get_args

from plancha_transports.fields import Schema

STRING = {"type": "string"}
COUNT = {"type": "integer", "minimum": 0}
NUMBER = {"type": "number"}
BOOLEAN = {"type": "boolean"}
NAME_OR_NULL = {"type": ["string", "null"]}


def reference(name: str) -> Schema:
    """To a schema by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


def object_of(**properties: Schema) -> Schema:
    """All of these, and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def one_of(literal: Any) -> Schema:
    """One of the values of a `Literal`."""
    return {"enum": list(get_args(literal))}


def optional(schema: Schema) -> Schema:
    """That, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def list_of(items: Schema) -> Schema:
    """However many."""
    return {"type": "array", "items": items}


def without(schema: Schema, *names: str) -> Schema:
    """`schema` with these properties optional."""
    return {**schema, "required": [name for name in schema["required"] if name not in names]}
