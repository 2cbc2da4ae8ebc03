"""Checks of single JSON values: strict types, and each says in JSON Schema what it lets through.

A check takes a field's name and value, and returns the value as its type or raises `RequestFailed`
naming both. `true` is no number, `"1"` is none either, and `1.0` is no whole number.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import attrs

from plancha.failure import RequestFailed, invalid

T = TypeVar("T")
Schema = Mapping[str, Any]
"""JSON Schema, draft 2020-12, as OpenAPI 3.1 has it."""

LABEL = re.compile(r"[!-~]{1,128}")
TOKEN_ID = re.compile(r"0|[1-9][0-9]{0,17}")
MAX_STOPS = 16
MOST_TOKENS = 2**31 - 1  # of any count of tokens: more would not fit the engine's 32-bit columns
MAX_STOP_TOKEN_IDS = 128
SHOWN_CHARACTERS = 60


@attrs.frozen
class Check(Generic[T]):
    """What a value must be, twice: as code, and as the schema that /openapi.json shows.

    A test holds the two together: they let the same values through. (But for 1.0, which is an
    integer to JSON Schema.)
    """

    take: Callable[[str, object], T]
    schema: Schema

    def __call__(self, name: str, value: object) -> T:
        """The value as its type. Raises `RequestFailed`."""
        return self.take(name, value)

    def described(self, description: str, **more: Any) -> "Check[T]":
        """The same check for one field: what it does there, its default, and the like."""
        return Check(self.take, {**self.schema, "description": description, **more})


def check(**schema: Any) -> Callable[[Callable[[str, object], T]], Check[T]]:
    """Decorator: makes a `Check` of a function. `schema` is what it lets through."""
    return lambda take: Check(take, schema)


def wrong(name: str, value: object, right: str) -> RequestFailed:
    """Field `name` has a value of the wrong type or range; `right` completes "it must be"."""
    return invalid(name, f"{name} is {shown(value)}; it must be {right}.")


def shown(value: object) -> str:
    """A value as a client wrote it, short; what may be content or large only by its kind."""
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return "an object"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"


@check(type="integer")
def whole_number(name: str, value: object) -> int:
    """An integer of any size."""
    if type(value) is not int:
        raise wrong(name, value, "a whole number")
    return value


def whole_number_from(low: int, high: int = MOST_TOKENS) -> Check[int]:
    """The check for an integer from `low` to `high`."""

    def take(name: str, value: object) -> int:
        if type(value) is not int or not low <= value <= high:
            raise wrong(name, value, f"a whole number from {low} to {high}")
        return value

    return Check(take, {"type": "integer", "minimum": low, "maximum": high})


@check(type="number")
def number(name: str, value: object) -> float:
    """An integer or a float; JSON knows no infinity."""
    if type(value) is int or type(value) is float:
        return value
    raise wrong(name, value, "a number")


def number_from(low: float, high: float) -> Check[float]:
    """The check for a number from `low` to `high`."""

    def take(name: str, value: object) -> float:
        if (type(value) is not int and type(value) is not float) or not low <= value <= high:
            raise wrong(name, value, f"a number from {low:g} to {high:g}")
        return value

    return Check(take, {"type": "number", "minimum": low, "maximum": high})


@check(type="boolean")
def boolean(name: str, value: object) -> bool:
    """true or false."""
    if type(value) is not bool:
        raise wrong(name, value, "true or false")
    return value


@check(type="string")
def string(name: str, value: object) -> str:
    """Text, the empty one too."""
    if not isinstance(value, str):
        raise wrong(name, value, "a string")
    return value


@check(type="string", pattern=f"^{LABEL.pattern}$")
def label(name: str, value: object) -> str:
    """A client's own id: 1 to 128 visible ASCII characters."""
    if not isinstance(value, str) or LABEL.fullmatch(value) is None:
        raise wrong(name, value, "a string of 1 to 128 visible ASCII characters")
    return value


@check(type="array")
def array(name: str, value: object) -> list[object]:
    """A list of anything."""
    if not isinstance(value, list):
        raise wrong(name, value, "a list")
    return value


@check(type="object")
def table(name: str, value: object) -> dict[str, object]:
    """An object of anything."""
    if not isinstance(value, dict):
        raise wrong(name, value, "an object")
    return value


@check(type="object", additionalProperties={"type": "string"})
def strings(name: str, value: object) -> dict[str, str]:
    """An object whose values are all strings."""
    found: dict[str, str] = {}
    for key, each in table(name, value).items():
        if not isinstance(each, str):
            raise invalid(name, f"{name} of {shown(key)} is {shown(each)}; it must be a string.")
        found[key] = each
    return found


@check(type="array", items={"type": "integer"})
def token_ids(name: str, value: object) -> tuple[int, ...]:
    """A list of integers; whether the vocabulary knows them is asked later."""
    values = array(name, value)
    if not all(type(each) is int for each in values):
        index = next(i for i, each in enumerate(values) if type(each) is not int)
        raise wrong(f"{name}[{index}]", values[index], "a token id, which is a whole number")
    return tuple(values)  # type: ignore[arg-type]


@check(type="array", items={"type": "integer"}, maxItems=MAX_STOP_TOKEN_IDS)
def stop_token_ids(name: str, value: object) -> tuple[int, ...]:
    """Token ids that end an answer; every step compares with each of them."""
    found = token_ids(name, value)
    if len(found) > MAX_STOP_TOKEN_IDS:
        raise wrong(name, value, f"a list of up to {MAX_STOP_TOKEN_IDS} token ids")
    return found


@check(
    anyOf=[
        {"type": "string", "minLength": 1},
        {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": MAX_STOPS},
    ]
)
def stops(name: str, value: object) -> tuple[str, ...]:
    """One stop string or up to `MAX_STOPS` of them, none empty."""
    values = [value] if isinstance(value, str) else value
    right = f"a non-empty string or a list of up to {MAX_STOPS} of them"
    if not isinstance(values, list) or len(values) > MAX_STOPS:
        raise wrong(name, value, right)
    for each in values:
        if not isinstance(each, str) or not each:
            raise wrong(name, each, right)
    return tuple(values)


def logit_bias_within(most: float) -> Check[tuple[tuple[int, float], ...]]:
    """The check for an object from token ids, as strings, to numbers from -`most` to `most`."""

    def take(name: str, value: object) -> tuple[tuple[int, float], ...]:
        biases = []
        for token, bias in table(name, value).items():
            if TOKEN_ID.fullmatch(token) is None:
                raise invalid(name, f"{name} has the key {shown(token)}; keys must be token ids.")
            if (type(bias) is not int and type(bias) is not float) or not -most <= bias <= most:
                right = f"a number from {-most:g} to {most:g}"
                raise invalid(name, f"{name} of {token} is {shown(bias)}; it must be {right}.")
            biases.append((int(token), float(bias)))
        return tuple(biases)

    return Check(
        take,
        {
            "type": "object",
            "propertyNames": {"pattern": f"^({TOKEN_ID.pattern})$"},
            "additionalProperties": {"type": "number", "minimum": -most, "maximum": most},
        },
    )
