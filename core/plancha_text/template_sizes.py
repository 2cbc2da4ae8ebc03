"""How large a template's operations would come out, asked before they are done."""

import re
from string import Formatter
from typing import Any

from plancha_text.template_budget import TooMuch, budget

MOST_WIDTH = 1_000
"""Of numbers that say how wide, deep or many: a column, an indent, a batch."""

_CONVERSION = re.compile(r"%(?:\([^()]*\))?[-#0 +]*(?P<width>[\d*]*)\.?(?P<precision>[\d*]*)")
_TOO_WIDE = re.compile(r"\*|\{|\d{4}")


def binop_size(operator: str, left: Any, right: Any) -> int:
    """At most, of `left operator right`; whatever else it is given will fail by itself."""
    if operator == "*":
        return _product_size(left, right)
    if operator == "**":
        return _power_size(left, right)
    if operator == "%" and isinstance(left, str):
        return percent_size(left, right)
    if operator == "+":
        return budget().size(left) + budget().size(right)
    return 1


def _product_size(left: Any, right: Any) -> int:
    for repeated, times in ((left, right), (right, left)):
        if isinstance(times, int) and isinstance(repeated, str | list | tuple):
            return budget().size(repeated) * max(times, 0)
    return 1 if isinstance(left, float) or isinstance(right, float) else _digits(left, right)


def _power_size(left: Any, right: Any) -> int:
    if isinstance(left, int) and isinstance(right, int):
        size = left.bit_length() * max(right, 1)
        if size > MOST_WIDTH:
            raise TooMuch
        return size
    return 1


def _digits(left: Any, right: Any) -> int:
    if isinstance(left, int) and isinstance(right, int):
        return left.bit_length() + right.bit_length()
    return 1


def percent_size(form: str, arguments: Any) -> int:
    """At most, of `form % arguments`. No widths of 1000 and more, nor any from arguments."""
    conversions = _CONVERSION.findall(form)
    return _formatted_size(
        form, [width + "." + precision for width, precision in conversions], arguments
    )


def format_size(form: str, arguments: Any) -> int:
    """At most, of `form.format(arguments)`; the like."""
    fields = [spec or "" for _, name, spec, _ in Formatter().parse(form) if name is not None]
    return _formatted_size(form, fields, arguments)


def _formatted_size(form: str, specifications: list[str], arguments: Any) -> int:
    if any(map(_TOO_WIDE.search, specifications)):
        raise TooMuch
    return len(form) + len(specifications) * (budget().size(arguments) + MOST_WIDTH)


def replaced_size(text: str, old: str, new: str) -> int:
    """Of `text.replace(old, new)`."""
    return len(text) + text.count(old) * max(len(new) - len(old), 0)


def joined_size(separator: str, parts: list[Any]) -> int:
    """Of `separator.join(parts)`."""
    return budget().size(parts) + len(separator) * len(parts)


def admit_width(value: Any) -> None:
    """Refuse a width, or a text to indent by, that is too large."""
    width = len(value) if isinstance(value, str) else value
    if isinstance(width, int) and abs(width) > MOST_WIDTH:
        raise TooMuch


def admit_method(text: str, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Refuse a method of a text that would make too much of it. Returns the arguments to use."""
    if name in ("center", "ljust", "rjust", "zfill") and args:
        admit_width(args[0])
    elif name == "replace" and len(args) >= 2:
        budget().admit(replaced_size(text, *args[:2]))
    elif name == "join" and args:
        parts = list(args[0])  # it may be a generator, to be had only once
        budget().admit(joined_size(text, parts))
        return (parts, *args[1:])
    return args
