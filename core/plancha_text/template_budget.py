"""How much one rendering of a template may take."""

import time
from collections.abc import ItemsView, Iterable, Iterator, KeysView, ValuesView
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

RENDER_SECONDS = 1.0
"""Processor time of one rendering's own thread, so that a busy machine fails nobody's request."""

SIZE_FACTOR = 10
SIZE_AT_LEAST = 1_000_000

_CONTAINERS = (list, tuple, dict, set, frozenset, KeysView, ValuesView, ItemsView)


class TooMuch(Exception):
    """A template takes too long, or makes something too large."""


class Budget:
    """Bounds one rendering: processor time in all, and the size of everything it makes.

    Sizes count characters, and elements however deep they are. The bound is ten times the size of
    what the template was given, and a million at least.
    """

    def __init__(self, given: Any, seconds: float = RENDER_SECONDS) -> None:
        self._deadline = time.thread_time() + seconds
        self._written = 0
        self._given: dict[int, int] = {}  # sizes by id, of containers that outlive the rendering
        self._most = max(SIZE_AT_LEAST, SIZE_FACTOR * self._measure_given(given))

    def tick(self) -> None:
        """Called in everything that a template can do often. Raises `TooMuch`, as all do here."""
        if time.thread_time() > self._deadline:
            raise TooMuch

    def write(self, text: str) -> None:
        """Count what is rendered."""
        self._written += len(text)
        self.admit(self._written)

    def admit(self, size: int) -> None:
        """Refuse something of `size` before it is made."""
        if size > self._most:
            raise TooMuch

    def size(self, value: Any) -> int:
        """Of `value`, counted no further than the bound."""
        total, parts = 0, [value]
        while parts:
            part = parts.pop()
            if isinstance(part, str | bytes):
                total += len(part)
            elif isinstance(part, int):
                total += part.bit_length() // 8 + 1
            elif id(part) in self._given:
                total += self._given[id(part)]
            elif isinstance(part, _CONTAINERS):
                total += 1 + len(part)
                self.admit(total)
                parts.extend(_elements(part))
            self.admit(total)
        return total

    def made(self, value: Any) -> Any:
        """`value`, once its size is known to be within the bound."""
        self.size(value)
        return value

    def _measure_given(self, value: Any) -> int:
        if isinstance(value, str):
            return len(value)
        if not isinstance(value, _CONTAINERS):
            return 1
        size = 1 + len(value) + sum(map(self._measure_given, _elements(value)))
        self._given[id(value)] = size
        return size


def _elements(container: Any) -> Iterable[Any]:
    if isinstance(container, dict):
        return [*container.keys(), *container.values()]
    return list(container)


_budget: ContextVar[Budget] = ContextVar("template_budget")


def budget() -> Budget:
    """Of the rendering this code runs in."""
    return _budget.get()


@contextmanager
def spending(budget: Budget) -> Iterator[None]:
    """Inside, `budget()` is the one given."""
    token = _budget.set(budget)
    try:
        yield
    finally:
        _budget.reset(token)
