"""The filters and functions of chat templates, each within the rendering's budget."""

import json
import re
from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import Any

from jinja2.utils import Namespace

from plancha_text.template_budget import TooMuch, budget
from plancha_text.template_sizes import (
    admit_width,
    joined_size,
    percent_size,
    replaced_size,
)

REMOVED_FILTERS = ("pprint", "random", "striptags", "urlize", "wordwrap", "xmlattr")
"""Of no use to a chat, and slow or endless on the wrong text."""

_WIDTHS = ("batch", "center", "indent", "round", "slice")
_SHALLOW = ("count", "d", "default", "first", "last", "length", "list", "made")

Function = Callable[..., Any]


class TemplateRefused(Exception):
    """The template's own `raise_exception`, with its message."""


def within_budget(name: str, function: Function) -> Function:
    """The filter `function`, which refuses to take or make what is too large."""
    skipped = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def limited(*args: Any, **kwargs: Any) -> Any:
        spent = budget()
        spent.tick()
        before, value, parameters = args[:skipped], args[skipped], args[skipped + 1 :]
        if name not in _SHALLOW:
            spent.size(value)
        if name in _WIDTHS:
            for parameter in (*parameters, *kwargs.values()):
                admit_width(parameter)
        if name in _ADMITTED:
            value = _ADMITTED[name](value, *parameters, **kwargs)
        return spent.made(function(*before, value, *parameters, **kwargs))

    return limited


def _admit_replace(value: Any, old: Any, new: Any, count: Any = None) -> Any:
    budget().admit(replaced_size(str(value), str(old), str(new)))
    return value


def _admit_join(value: Any, d: Any = "", attribute: Any = None) -> list[Any]:
    parts = list(value)  # it may be a generator, to be had only once
    budget().admit(joined_size(str(d), parts))
    return parts


def _admit_format(value: Any, *args: Any, **kwargs: Any) -> Any:
    budget().admit(percent_size(str(value), [args, kwargs]))
    return value


def _admit_indent(value: Any, width: Any = 4, first: Any = False, blank: Any = False) -> Any:
    by = len(width) if isinstance(width, str) else int(width)
    text = str(value)
    budget().admit(len(text) + (text.count("\n") + 1) * by)
    return value


def _admit_sum(value: Any, attribute: Any = None, start: Any = 0) -> Any:
    if not isinstance(start, int | float):  # sums of lists are quadratic
        raise TooMuch
    return value


_ADMITTED: dict[str, Function] = {
    "replace": _admit_replace,
    "join": _admit_join,
    "format": _admit_format,
    "indent": _admit_indent,
    "sum": _admit_sum,
}


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As `json.dumps`, and unlike Jinja's own without HTML's escapes."""
    if indent is not None:
        admit_width(indent)
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    parts, size = [], 0
    for part in encoder.iterencode(value):
        size += len(part)
        budget().admit(size)
        parts.append(part)
    return "".join(parts)


def _made(value: Any) -> Any:
    return value


class _Namespace(Namespace):
    """Jinja's, but it does not show what it holds, since nobody measures that."""

    def __repr__(self) -> str:
        return "<namespace>"


def _raise_exception(message: Any) -> None:
    raise TemplateRefused(str(message))


def _strftime_now(form: str) -> str:
    """The local time; `form` as `datetime.strftime` has it, without widths of 1000 and more."""
    if len(form) > 1_000 or re.search(r"\d{4}", form):
        raise TooMuch
    return datetime.now().strftime(form)


def _dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)


FILTERS: dict[str, Function] = {"tojson": _tojson, "made": _made}
GLOBALS: dict[str, Any] = {
    "dict": _dict,
    "namespace": _Namespace,
    "raise_exception": _raise_exception,
    "strftime_now": _strftime_now,
}
