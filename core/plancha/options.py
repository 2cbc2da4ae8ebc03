"""From a TOML table to an attrs class: strictly, and with every mistake of the table at once.

A plugin structures its own table: `structure(options, MyOptions, "scheduler")`. Types are taken at
their word: `"16"`, `16.0` and `true` are no whole number, though a whole number is a number.
Ranges are attrs validators; those of `option_values`, here by name too, tell what would be right.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, cast, get_args, get_origin

import attrs
import cattrs
from cattrs.cols import is_mapping, is_sequence

from plancha.option_problems import OptionsError, Problem, locate, under
from plancha.option_values import (
    SIZE,
    Check,
    Size,
    at_least,
    between,
    describe,
    is_literal,
    is_secret,
    is_union,
    multiple_of,
    parse_size,
    power_of_two,
    shown,
)

__all__ = [
    "OptionsError",
    "Problem",
    "Size",
    "at_least",
    "between",
    "is_secret",
    "locate",
    "multiple_of",
    "parse_size",
    "power_of_two",
    "requirement",
    "shown",
    "structure",
]

T = TypeVar("T")


def structure(table: Mapping[str, Any], cls: type[T], where: str) -> T:
    """`table` as an instance of the attrs class `cls`; `where` is its own path ("" at the top).

    Fields may be int, float, str, bool, Path, Size, Literal, `X | None`, attrs classes, and
    tuples, lists and dicts of these. A field with a converter hands it the raw value and reports
    its ValueError. Raises `OptionsError` with all mistakes.
    """
    try:
        return _converter.structure(table, cls)
    except _Wrong as wrong:
        problem = Problem(key=where, value=shown(table), right=wrong.right, where=where)
        raise OptionsError((problem,)) from None
    except OptionsError as error:
        problems = (problem.moved(where) for problem in error.problems)
        raise OptionsError(tuple(locate(problem, cls, where) for problem in problems)) from None


class _Wrong(Exception):
    """A value of the wrong type, its place still unknown; `right` completes a Problem."""

    def __init__(self, right: str) -> None:
        super().__init__(right)
        self.right = right


def _structure_class(value: Any, cls: type) -> Any:
    if not isinstance(value, Mapping):
        raise _Wrong("must be a table")
    fields = {field.name: field for field in attrs.fields(attrs.resolve_types(cls)) if field.init}
    problems: list[Problem] = []
    found: dict[str, Any] = {}
    for key, given in value.items():
        if key not in fields:
            problems.append(_unknown(key, given, fields))
            continue
        try:
            found[fields[key].alias] = _structure_field(given, fields[key])
        except OptionsError as error:
            problems.extend(error.problems)
    for name, field in fields.items():
        if name not in value and field.default is attrs.NOTHING:
            problems.append(Problem(key=name, value=None, right=f"missing; {_right(field)}"))
    if problems:
        raise OptionsError(tuple(problems))
    return _make(cls, found)


def _make(cls: type, found: dict[str, Any]) -> Any:
    try:
        return cls(**found)
    except ValueError as error:  # a check across fields, in __attrs_post_init__
        raise _Wrong(str(error)) from None


def _structure_field(given: Any, field: "attrs.Attribute[Any]") -> Any:
    """The value a field takes. Raises `OptionsError` with keys that begin at the field."""
    try:
        if field.converter is not None:
            value = cast("Callable[[Any], Any]", field.converter)(given)
        else:
            value = _converter.structure(given, cast("type", field.type))
        if field.validator is not None:
            field.validator(None, field, value)
    except OptionsError as error:
        raise OptionsError(tuple(under(field.name, each) for each in error.problems)) from None
    except (_Wrong, ValueError, TypeError) as error:
        right = _right(field)
        if field.converter is not None or right == "must be a table":
            right = str(error)
        elif not isinstance(error, _Wrong) and not _checks(field):
            right = _without_subject(error, field)
        problem = Problem(key=field.name, value=shown(given, field.name), right=right)
        raise OptionsError((problem,)) from None
    return value


def _structure_items(value: Any, wanted: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise _Wrong(f"must be {describe(wanted)}")
    item = (get_args(wanted) or (Any,))[0]
    items = _each(((f"[{index}]", given) for index, given in enumerate(value)), item)
    return tuple(items.values()) if get_origin(wanted) is tuple else list(items.values())


def _structure_table(value: Any, wanted: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _Wrong("must be a table")
    return _each(value.items(), (get_args(wanted) or (str, Any))[1])


def _each(items: Any, wanted: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    problems: list[Problem] = []
    for key, given in items:
        try:
            found[key] = _converter.structure(given, wanted)
        except OptionsError as error:
            problems.extend(under(key, problem) for problem in error.problems)
        except _Wrong as wrong:
            problems.append(Problem(key=key, value=shown(given, key), right=wrong.right))
    if problems:
        raise OptionsError(tuple(problems))
    return found


def _structure_union(value: Any, wanted: Any) -> Any:
    options = [option for option in get_args(wanted) if option is not NoneType]
    if len(options) == 1:
        return _converter.structure(value, options[0])
    for option in options:
        try:
            return _converter.structure(value, option)
        except (_Wrong, OptionsError):
            continue
    raise _Wrong(f"must be {describe(wanted)}")


def _structure_scalar(value: Any, wanted: Any) -> Any:
    if wanted is float and type(value) is int:
        return float(value)
    if wanted is Path and isinstance(value, str):
        return Path(value)
    if type(value) is not wanted or (wanted is float and not math.isfinite(value)):
        raise _Wrong(f"must be {describe(wanted)}")
    return value


def _structure_literal(value: Any, wanted: Any) -> Any:
    for choice in get_args(wanted):
        if type(choice) is type(value) and choice == value:
            return choice
    raise _Wrong(f"must be {describe(wanted)}")


def _structure_size(value: Any, _wanted: Any) -> Size:
    try:
        return parse_size(value)
    except ValueError as error:
        raise _Wrong(str(error)) from None


def _unknown(key: str, given: object, fields: "Mapping[str, attrs.Attribute[Any]]") -> Problem:
    kind = "table" if isinstance(given, Mapping) else "key"
    valid = {name: _right(field) for name, field in fields.items()}
    near = get_close_matches(key, valid, 1)
    if near:
        right = f'no such {kind}; did you mean "{near[0]}"? It {valid[near[0]]}'
    else:
        right = f"no such {kind}; here are {', '.join(valid)}" if valid else "takes no keys"
    secret = near[0] if near and is_secret(near[0]) else key  # a misspelt one is no less secret
    value = None if kind == "table" else shown(given, secret)
    return Problem(key=_quoted(key), value=value, right=right, valid=valid)


def requirement(field: "attrs.Attribute[Any]") -> str:
    """What the field takes, as in "a whole number from 1 to 8"."""
    converter: object = field.converter
    if converter is not None:
        return SIZE if converter is parse_size else describe(field.type)
    checks = " and ".join(check.right for check in _checks(field))
    return f"{describe(field.type)} {checks}".rstrip()


def _right(field: "attrs.Attribute[Any]") -> str:
    return f"must be {requirement(field)}"


def _checks(field: "attrs.Attribute[Any]") -> list[Check]:
    validator = getattr(field.validator, "validator", field.validator)  # attrs' `optional`
    parts = getattr(validator, "_validators", (validator,))  # attrs' own `and_`
    return [part for part in parts if isinstance(part, Check)]


def _quoted(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)


def _without_subject(error: Exception, field: "attrs.Attribute[Any]") -> str:
    """An attrs validator says "'x' must be >= 1: 0"; key and value are told already."""
    text = str(error.args[0]) if error.args else "is not valid"
    return text.removeprefix(f"'{field.name}' ").partition(": ")[0]


def _is_size(wanted: Any) -> bool:
    return wanted is Size


def _new_converter() -> cattrs.Converter:
    converter = cattrs.Converter()
    for scalar in (int, float, str, bool, Path):
        converter.register_structure_hook(scalar, _structure_scalar)
    converter.register_structure_hook_func(attrs.has, _structure_class)
    converter.register_structure_hook_func(is_sequence, _structure_items)
    converter.register_structure_hook_func(is_mapping, _structure_table)
    converter.register_structure_hook_func(_is_size, _structure_size)
    converter.register_structure_hook_func(is_literal, _structure_literal)
    converter.register_structure_hook_func(is_union, _structure_union)
    return converter


_converter = _new_converter()
