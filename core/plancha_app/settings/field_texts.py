"""What a class says of its fields: the string that stands below each of them.

    port: int = 8000
    \"""Port to listen on.\"""

Python drops these strings; editors show them, and so do we, from the source.
"""

import ast
import inspect
import sys
from collections.abc import Iterator
from itertools import pairwise


def field_texts(cls: type) -> dict[str, str]:
    """By field, in one line each; a field without a text is not in it."""
    body = _definition(cls).body
    return {
        field.target.id: " ".join(text.split())
        for field, below in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and (text := _string(below))
    }


def class_text(cls: type) -> str:
    """What the class says of itself, in one line."""
    return " ".join((cls.__doc__ or "").split())


def _definition(cls: type) -> ast.ClassDef:
    module = ast.parse(inspect.getsource(sys.modules[cls.__module__]))
    (found,) = (each for name, each in _classes(module, "") if name == cls.__qualname__)
    return found


def _classes(inside: ast.Module | ast.ClassDef, path: str) -> Iterator[tuple[str, ast.ClassDef]]:
    for each in inside.body:
        if isinstance(each, ast.ClassDef):
            yield f"{path}{each.name}", each
            yield from _classes(each, f"{path}{each.name}.")


def _string(statement: ast.stmt) -> str | None:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        value = statement.value.value
        return value if isinstance(value, str) else None
    return None
