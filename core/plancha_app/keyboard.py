"""The terminal's keyboard while something else is shown: single keys, or keys that wait."""

import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio

termios: Any
try:  # now, and not when Ctrl-C may come in between
    import termios
except ImportError:  # no system of the kind
    termios = None

LOCAL_FLAGS, CHARACTERS = 3, 6
"""Of what `termios.tcgetattr` gives."""


@contextmanager
def single_keys() -> Iterator[bool]:
    """Keys are read one by one and not shown; afterwards the terminal is as it was.

    Gives whether there is a terminal to read from.
    """

    def change(termios: Any, mode: list[Any]) -> None:
        mode[LOCAL_FLAGS] &= ~(termios.ECHO | termios.ICANON)
        mode[CHARACTERS][termios.VMIN], mode[CHARACTERS][termios.VTIME] = 1, 0
        mode[CHARACTERS][termios.VSUSP] = b"\0"  # stopped, its screen would stay over the shell's

    with _changed(change) as is_there:
        yield is_there


@contextmanager
def unechoed() -> Iterator[bool]:
    """What is typed is not shown now, and is there when the next line is read."""

    def change(termios: Any, mode: list[Any]) -> None:
        mode[LOCAL_FLAGS] &= ~termios.ECHO

    with _changed(change) as is_there:
        yield is_there


@contextmanager
def _changed(change: Callable[[Any, list[Any]], None]) -> Iterator[bool]:
    if termios is None:
        yield False
        return
    try:
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
        mode = termios.tcgetattr(descriptor)
    except (AttributeError, ValueError, OSError, termios.error):
        yield False
        return
    change(termios, mode)
    try:  # from here on: Ctrl-C can come at once
        termios.tcsetattr(descriptor, termios.TCSADRAIN, mode)
        yield True
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


async def keys() -> AsyncIterator[str]:
    """Until stdin ends."""
    descriptor = sys.stdin.fileno()
    while True:
        await anyio.wait_readable(descriptor)
        typed = os.read(descriptor, 64)
        if not typed:
            return
        yield typed.decode("ascii", "replace")
