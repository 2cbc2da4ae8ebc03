"""Tracebacks without a word of what exceptions say: where, and of which class, is all there is.

An exception's text may quote what it choked on, and so a prompt or an output, whoever raises it: a
plugin, a library, Python itself.
"""

import traceback
from collections.abc import Iterator
from textwrap import indent

from plancha_app.telling import START_ERRORS

CAUSED = "\nThe above exception was the direct cause of the following exception:\n"
MEANWHILE = "\nDuring handling of the above exception, another exception occurred:\n"

DEEPEST = 8
"""Exceptions within each other, causes and groups together; beyond that nothing is told."""


def told(error: BaseException, deep: int = 0) -> str:
    """The traceback of an exception, of its causes, and of those in a group."""
    return "\n".join(_parts(error, deep)).replace("\n\n\n", "\n\n")


def _parts(error: BaseException, deep: int) -> Iterator[str]:
    if deep == DEEPEST:
        yield "…"
        return
    if error.__cause__ is not None:
        yield told(error.__cause__, deep + 1) + CAUSED
    elif error.__context__ is not None and not error.__suppress_context__:
        yield told(error.__context__, deep + 1) + MEANWHILE
    frames = traceback.StackSummary.extract(traceback.walk_tb(error.__traceback__))
    yield "Traceback (most recent call last):\n" + "".join(frames.format()).rstrip()
    yield name(error)
    if isinstance(error, BaseExceptionGroup):
        for number, each in enumerate(error.exceptions, 1):
            yield indent(f"{number} of {len(error.exceptions)}:\n{told(each, deep + 1)}", "  ")


def name(error: BaseException) -> str:
    """Its class; of what is for the operator its text, of what the system said the reason."""
    kind = type(error)
    whole = kind.__qualname__
    if kind.__module__ != "builtins":
        whole = f"{kind.__module__}.{whole}"
    if isinstance(error, START_ERRORS):
        return f"{whole}: {error}"
    if isinstance(error, OSError) and error.strerror and error.errno is not None:
        return f"{whole}: {error.strerror}"
    return whole
