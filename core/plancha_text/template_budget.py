"""How much one rendering of a template may take."""

import time
from collections import OrderedDict
from collections.abc import ItemsView, Iterable, Iterator, KeysView, ValuesView
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

RENDER_SECONDS = 1.0
"""Processor time of one rendering's own thread, so that a busy machine fails nobody's request."""

LARGEST = 1_000_000
"""Size of one value that may be made even if little was given."""

LARGEST_SUM = 100_000_000
"""Of all values made."""

_REMEMBERED = 64
_CONTAINERS = (list, tuple, dict, set, frozenset, KeysView, ValuesView, ItemsView)


class TooMuch(Exception):
    """A template takes too long, or makes something too large."""


class Budget:
    """Bounds one rendering: processor time, the size of every value, and of all values together.

    A value's size counts its characters, and its elements however deep they are: that bounds what
    one operation on it can take. The sum counts only what is new: that bounds memory. Both bounds
    grow with the size of what the template was given.
    """

    def __init__(self, given: Any, seconds: float = RENDER_SECONDS) -> None:
        self._deadline = time.thread_time() + seconds
        self._given: dict[int, int] = {}  # sizes by id, of containers that outlive the rendering
        self._recent: OrderedDict[int, tuple[int, Any]] = OrderedDict()  # and of some made in it
        size = self._measure_given(given)
        self._largest = max(LARGEST, 10 * size)
        self._largest_sum = LARGEST_SUM + 30 * size
        self._sum = 0
        self._written = 0

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
        if size > self._largest:
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
            elif id(part) in self._recent:
                total += self._recent[id(part)][0]
            elif isinstance(part, _CONTAINERS):
                self.tick()
                total += 1 + len(part)
                self.admit(total)
                parts.extend(_elements(part))
            self.admit(total)
        return total

    def made(self, value: Any, size: int | None = None) -> Any:
        """`value`, which is new, once its size (if not known, counted) is found within bounds."""
        size = self.size(value) if size is None else size
        self.admit(size)
        if isinstance(value, _CONTAINERS):
            self._recent[id(value)] = size, value  # holds it, so that its id stays its own
            if len(self._recent) > _REMEMBERED:
                self._recent.popitem(last=False)
            self._sum += len(value)
        elif isinstance(value, str | bytes):
            self._sum += len(value)
        if self._sum > self._largest_sum:
            raise TooMuch
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
