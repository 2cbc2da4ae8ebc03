"""What a slow start is busy with: bars and a spinner on a terminal, log lines anywhere else."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog
from rich.console import Console

from plancha_engine.report import ConsoleReport, LineReport, Report

log = structlog.get_logger()


def fetching() -> Report:
    """Where a download reports to."""
    if sys.stderr.isatty():
        return ConsoleReport(Console(stderr=True))
    return LineReport(_log_line)


@contextmanager
def loading() -> Iterator[Callable[[str], None]]:
    """Give a function to call, from any thread, with what is being done now."""
    began = time.monotonic()
    if not sys.stderr.isatty():
        yield _log_line
    else:
        with Console(stderr=True).status("loading the model") as status:
            yield lambda doing: status.update(f"{doing} ({time.monotonic() - began:.0f} s)")
    log.info("loaded", seconds=round(time.monotonic() - began, 1))


def _log_line(doing: str) -> None:
    log.info("loading", doing=doing)
