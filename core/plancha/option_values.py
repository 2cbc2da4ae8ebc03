"""What a setting may be: sizes, ranges, and how a value and a type are named to an operator."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NewType, Union, get_args, get_origin

import attrs
from cattrs.cols import is_sequence

Size = NewType("Size", int)
"""A field type: bytes, written as a whole number or with a unit ("512MiB", "2GB")."""

UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12} | {
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
SIZE = 'a size such as "512MiB" or "2GiB", or bytes as a whole number'
SHOWN_CHARACTERS = 60
SECRET_WORDS = frozenset(
    {"credential", "credentials", "key", "keys", "passphrase", "password", "secret", "token"}
)


def parse_size(value: object) -> Size:
    """Bytes of "512MiB", "2GB" or 1024. Raises ValueError that says what would be right."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return Size(value)
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([A-Za-z]+)", value) if isinstance(value, str) else None
    if match is None or match[2] not in UNITS:
        raise ValueError(f"must be {SIZE}")
    return Size(round(float(match[1]) * UNITS[match[2]]))


Validator = Callable[[Any, "attrs.Attribute[Any]", Any], None]


def between(low: float, high: float) -> Validator:
    """From `low` to `high`, both included."""
    return Check(f"from {low:,} to {high:,}".replace(",", "_"), lambda value: low <= value <= high)


def at_least(low: float) -> Validator:
    """`low` or more."""
    return Check(f"of {low} or more", lambda value: low <= value)


def multiple_of(number: int) -> Validator:
    """A positive multiple of `number`."""
    return Check(f"that is a multiple of {number}", lambda value: value > 0 == value % number)


def power_of_two(low: int, high: int) -> Validator:
    """A power of two from `low` to `high`."""
    powers = [2**n for n in range(low.bit_length() - 1, high.bit_length()) if low <= 2**n <= high]
    listed = f"{', '.join(map(str, powers[:-1]))} or {powers[-1]}"
    return Check(f"that is a power of two: {listed}", lambda value: value in powers)


def shown(value: object, key: str = "") -> str:
    """`value` as TOML writes it, shortened; a secret's value stays hidden."""
    if is_secret(key) and isinstance(value, str | list | tuple):
        return '"…"'
    if isinstance(value, Mapping):
        return "{…}" if value else "{}"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"


def is_secret(key: str) -> bool:
    """Whether a key's name says that its text must never be shown ("api_key", "password")."""
    last = key.rpartition(".")[2]
    return not SECRET_WORDS.isdisjoint(re.split(r"[^a-z]+", last.lower()))


@attrs.frozen
class Check:
    """An attrs validator that can tell what would be right, after "must be a whole number"."""

    right: str
    holds: Callable[[Any], bool]

    def __call__(self, instance: object, attribute: "attrs.Attribute[Any]", value: Any) -> None:
        if value is not None and not self.holds(value):
            raise ValueError(f"{attribute.name} is {value}; it must be one {self.right}")


def describe(wanted: Any) -> str:
    """A type in the operator's words."""
    words = {
        int: "a whole number",
        float: "a number",
        str: "text",
        bool: "true or false",
        Path: "a path",
        Size: SIZE,
        Any: "any value",
    }
    if wanted in words:
        return words[wanted]
    parts = get_args(wanted)
    if is_literal(wanted):
        return " or ".join(shown(choice) for choice in parts)
    if is_union(wanted):
        return " or ".join(describe(part) for part in parts if part is not NoneType)
    if is_sequence(wanted):
        return f"a list, each {describe(parts[0])}" if parts else "a list"
    return "a table"


def is_literal(wanted: Any) -> bool:
    """Whether a type is `Literal[…]`."""
    return get_origin(wanted) is Literal


def is_union(wanted: Any) -> bool:
    """Whether a type is `X | Y`, however it is spelt."""
    return get_origin(wanted) in (Union, UnionType)
