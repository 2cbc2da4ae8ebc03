"""The `plancha` command: runs what was typed, and tells what went wrong instead of a traceback."""

import os
import sys
from collections.abc import Sequence

from plancha_app.complaints import INTERRUPTED, MISTAKE, tell_error


def main(words: Sequence[str] | None = None) -> None:
    """Ends the process, with the arguments it was started with unless given others."""
    code = INTERRUPTED
    try:
        _write_whatever_comes()
        code = _run(sys.argv[1:] if words is None else words)
        _flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:  # `| head` has what it wanted
        _forget_output()
        code = 0
    except Exception as error:
        told = tell_error(error)
        if told is None:
            raise
        _forget_output()
        code = told
    sys.exit(code)


def _run(words: Sequence[str]) -> int:
    from cyclopts import CycloptsError

    from plancha_app.commands.all import app

    try:
        found = app(words, exit_on_error=False, result_action="return_value")
    except CycloptsError:  # told by then
        return MISTAKE
    return found if isinstance(found, int) else 0


def _write_whatever_comes() -> None:
    """A terminal that cannot show a character gets a question mark, and no traceback."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace" if stream is sys.stdout else "backslashreplace")


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _forget_output() -> None:
    """What nobody reads any more, or no disk takes, is not written at the end either."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
