"""What a slow start is busy with: a spinner on a terminal, log lines anywhere else."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog
from rich.console import Console

log = structlog.get_logger()


@contextmanager
def reporting() -> Iterator[Callable[[str], None]]:
    """Give a function to call, from any thread, with what is being done now."""
    began = time.monotonic()
    if not sys.stderr.isatty():
        yield lambda doing: log.info("loading", doing=doing)
    else:
        with Console(stderr=True).status("starting") as status:
            yield lambda doing: status.update(f"{doing} ({time.monotonic() - began:.0f} s)")
    log.info("loaded", seconds=round(time.monotonic() - began, 1))
