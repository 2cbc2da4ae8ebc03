"""Reading a JSON object field by field: strict types, no unknown names, null means absent.

A check takes a field's name and value, and returns the value as its type or raises `RequestFailed`
naming both. `true` is no number, `"1"` is none either, and `1.0` is no whole number.
"""

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from plancha.failure import RequestFailed, invalid

Check = Callable[[str, object], Any]

LABEL = re.compile(r"[!-~]{1,128}")
TOKEN_ID = re.compile(r"0|[1-9][0-9]{0,17}")
MAX_STOPS = 16
MAX_STOP_TOKEN_IDS = 128
SHOWN_CHARACTERS = 60


def read(
    table: Mapping[str, object],
    checks: Mapping[str, Check],
    defaults_only: Mapping[str, tuple[object, ...]],
    within: str = "",
) -> dict[str, Any]:
    """The checked values of the fields that are there and not null.

    Fields of `defaults_only` are known and do nothing yet: null and the values listed are let
    through. `within` is put before names in errors ("stream_options."). Raises `RequestFailed` for
    the first field that is unknown, of another type or out of range.
    """
    found = {}
    for name, value in table.items():
        if name in checks:
            if value is not None:
                found[name] = checks[name](within + name, value)
        elif name in defaults_only:
            if value is not None and not _is_one_of(value, defaults_only[name]):
                raise _unsupported(within + name, value, defaults_only[name])
        else:
            raise _unknown(name, within, (*checks, *defaults_only))
    return found


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


def whole_number(name: str, value: object) -> int:
    """An integer of any size."""
    if type(value) is not int:
        raise wrong(name, value, "a whole number")
    return value


def whole_number_from(low: int, high: int) -> Check:
    """The check for an integer from `low` to `high`."""

    def check(name: str, value: object) -> int:
        if type(value) is not int or not low <= value <= high:
            raise wrong(name, value, f"a whole number from {low} to {high}")
        return value

    return check


def number(name: str, value: object) -> float:
    """An integer or a float; JSON knows no infinity."""
    if type(value) is int or type(value) is float:
        return value
    raise wrong(name, value, "a number")


def boolean(name: str, value: object) -> bool:
    """true or false."""
    if type(value) is not bool:
        raise wrong(name, value, "true or false")
    return value


def string(name: str, value: object) -> str:
    """Text, the empty one too."""
    if not isinstance(value, str):
        raise wrong(name, value, "a string")
    return value


def label(name: str, value: object) -> str:
    """A client's own id: 1 to 128 visible ASCII characters."""
    if not isinstance(value, str) or LABEL.fullmatch(value) is None:
        raise wrong(name, value, "a string of 1 to 128 visible ASCII characters")
    return value


def array(name: str, value: object) -> list[object]:
    """A list of anything."""
    if not isinstance(value, list):
        raise wrong(name, value, "a list")
    return value


def table(name: str, value: object) -> dict[str, object]:
    """An object of anything."""
    if not isinstance(value, dict):
        raise wrong(name, value, "an object")
    return value


def strings(name: str, value: object) -> dict[str, str]:
    """An object whose values are all strings."""
    found: dict[str, str] = {}
    for key, each in table(name, value).items():
        if not isinstance(each, str):
            raise invalid(name, f"{name} of {shown(key)} is {shown(each)}; it must be a string.")
        found[key] = each
    return found


def token_ids(name: str, value: object) -> tuple[int, ...]:
    """A list of integers; whether the vocabulary knows them is asked later."""
    values = array(name, value)
    if not all(type(each) is int for each in values):
        index = next(i for i, each in enumerate(values) if type(each) is not int)
        raise wrong(f"{name}[{index}]", values[index], "a token id, which is a whole number")
    return tuple(values)  # type: ignore[arg-type]


def stop_token_ids(name: str, value: object) -> tuple[int, ...]:
    """Token ids that end an answer; every step compares with each of them."""
    found = token_ids(name, value)
    if len(found) > MAX_STOP_TOKEN_IDS:
        raise wrong(name, value, f"a list of up to {MAX_STOP_TOKEN_IDS} token ids")
    return found


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


def logit_bias(name: str, value: object) -> tuple[tuple[int, float], ...]:
    """An object from token ids, written as strings, to numbers."""
    biases = []
    for token, bias in table(name, value).items():
        if TOKEN_ID.fullmatch(token) is None:
            raise invalid(name, f"{name} has the key {shown(token)}; keys must be token ids.")
        if type(bias) is not int and type(bias) is not float:
            raise invalid(name, f"{name} of {token} is {shown(bias)}; it must be a number.")
        biases.append((int(token), float(bias)))
    return tuple(biases)


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
