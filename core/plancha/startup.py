"""What a start is busy with, as far as anybody may hear it."""

from typing import Literal

import attrs

Phase = Literal[
    "starting",
    "fetching",
    "compiling kernels",
    "loading weights",
    "warming up",
    "loading",  # an executor tells in words of its own
    "started",
]


@attrs.frozen
class Stage:
    """A phase, and how far it is. Whoever asks for the server's health sees both, and not `text`.

    That is a line for the log, and may name files; "": it is not worth one.
    """

    phase: Phase
    percent: int | None = None  # of this phase, 0 to 100; None: nobody knows
    text: str = ""


STARTING = Stage("starting")
STARTED = Stage("started", 100)
