"""The terminal's keyboard while something else is shown: single keys, or keys that wait."""

import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio

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
    try:
        import termios

        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
        mode = termios.tcgetattr(descriptor)
    except (ImportError, AttributeError, ValueError, OSError, termios.error):
        yield False
        return
    change(termios, mode)
    termios.tcsetattr(descriptor, termios.TCSADRAIN, mode)
    try:
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
