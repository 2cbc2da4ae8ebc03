"""Single keys from a terminal, while something else is shown on it."""

import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import anyio


@contextmanager
def single_keys() -> Iterator[bool]:
    """Keys are read one by one and not shown; afterwards the terminal is as it was.

    Gives whether there is a terminal to read from.
    """
    try:
        import termios
        import tty

        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
    except (ImportError, AttributeError, ValueError, OSError, termios.error):
        yield False
        return
    tty.setcbreak(descriptor)
    held = termios.tcgetattr(descriptor)
    held[6][termios.VSUSP] = b"\0"  # stopped, it would leave its screen over the shell's
    termios.tcsetattr(descriptor, termios.TCSANOW, held)
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
