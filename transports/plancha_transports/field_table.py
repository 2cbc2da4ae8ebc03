"""Which fields an object may have: read strictly, and described in JSON Schema, from one table."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import attrs

from plancha.failure import RequestFailed, invalid
from plancha_transports.fields import SHOWN_CHARACTERS, Check, Schema, shown, table

DOES_NOTHING = "Known, and does nothing yet: only values that would change nothing are taken."


@attrs.frozen(kw_only=True)
class FieldTable:
    """The fields of one kind of object; no other is let through.

    Null means absent, except where `required` or `never_null`. Fields of `defaults_only` are known
    and do nothing yet: null and the values listed are let through.
    """

    checks: Mapping[str, Check[Any]]
    defaults_only: Mapping[str, tuple[object, ...]] = attrs.field(factory=dict)
    required: tuple[str, ...] = ()
    never_null: tuple[str, ...] = ()

    def read(self, found_in: Mapping[str, object], within: str = "") -> dict[str, Any]:
        """The checked values of the fields that are there and not null.

        `within` is put before names in errors ("stream_options."). Raises `RequestFailed` for the
        first field that is unknown, of another type or out of range, and for one that is missing.
        """
        found = {}
        for name, value in found_in.items():
            if name in self.checks:
                if value is not None:
                    found[name] = self.checks[name](within + name, value)
                elif name in self.never_null:
                    raise invalid(within + name, f"{within}{name} is null; leave it out.")
            elif name in self.defaults_only:
                if value is not None and not _is_one_of(value, self.defaults_only[name]):
                    raise _unsupported(within + name, value, self.defaults_only[name])
            else:
                raise _unknown(name, within, (*self.checks, *self.defaults_only))
        for name in self.required:
            if name not in found:
                raise invalid(within + name, f"{within}{name} is missing.")
        return found

    def check(self) -> Check[dict[str, Any]]:
        """The check for a field that holds such an object."""
        return Check(lambda name, value: self.read(table(name, value), f"{name}."), self.schema())

    def schema(self) -> dict[str, Any]:
        """What `read` lets through."""
        solid = {*self.required, *self.never_null}
        taken = {
            name: check.schema if name in solid else _or_null(check.schema)
            for name, check in self.checks.items()
        }
        idle = {
            name: {"description": DOES_NOTHING, "enum": [*values, None]}
            for name, values in self.defaults_only.items()
            if name not in taken
        }
        return {
            "type": "object",
            "properties": {**taken, **idle},
            "required": list(self.required),
            "additionalProperties": False,
        }


def _or_null(schema: Schema) -> Schema:
    if isinstance(schema.get("type"), str):
        return {**schema, "type": [schema["type"], "null"]}
    notes = {key: schema[key] for key in ("description", "default") if key in schema}
    rest = {key: value for key, value in schema.items() if key not in notes}
    if list(rest) == ["anyOf"]:
        return {**notes, "anyOf": [*rest["anyOf"], {"type": "null"}]}
    return {**notes, "anyOf": [rest, {"type": "null"}]}


def _is_one_of(value: object, allowed: tuple[object, ...]) -> bool:
    return any(type(value) is type(each) and value == each for each in allowed)


def _unsupported(name: str, value: object, allowed: tuple[object, ...]) -> RequestFailed:
    message = f"{name} is {shown(value)}; this server does not support it yet, leave it out"
    if allowed and not isinstance(allowed[0], list | dict):
        message += f" or set it to {shown(allowed[0])}"
    return invalid(name, f"{message}.", "unsupported_parameter")


def _unknown(name: str, within: str, known: tuple[str, ...]) -> RequestFailed:
    near = get_close_matches(name, known, 1) if len(name) <= SHOWN_CHARACTERS else []
    hint = f"; did you mean {within}{near[0]}?" if near else "."
    short = name if len(name) <= SHOWN_CHARACTERS else f"{name[: SHOWN_CHARACTERS - 1]}…"
    return invalid(within + short, f"There is no field {within}{short}{hint}", "unknown_parameter")
