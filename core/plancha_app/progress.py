"""What a slow start is busy with: bars and a spinner on a terminal, log lines anywhere else.

Whoever asks for the server's health is told too, in phases and percent.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs
import structlog
from rich.console import Console

from plancha.contracts import Progress
from plancha.startup import Stage
from plancha_engine.report import ConsoleReport, LineReport, Moved, Report

log = structlog.get_logger()


Tell = Callable[[Stage], None]
"""Takes the latest stage, from any thread."""


def fetching(tell: Tell) -> Report:
    """Where a download reports to."""
    if sys.stderr.isatty():
        return StagedReport(ConsoleReport(Console(stderr=True)), tell)
    return StagedReport(LineReport(_log_line), tell)


@attrs.frozen
class StagedReport:
    """A report that also tells how far it is."""

    inner: Report
    tell: Tell

    def say(self, text: str) -> None:
        """See `Report.say`."""
        self.tell(Stage("fetching"))
        self.inner.say(text)

    @contextmanager
    def transfer(self, what: str, total: int) -> Iterator[Moved]:
        """See `Report.transfer`."""
        percent = 0

        def told(done: int) -> None:
            nonlocal percent
            moved(done)
            now = 100 * min(done, total) // max(total, 1)
            if now > percent:
                percent = now
                self.tell(Stage("fetching", percent))

        self.tell(Stage("fetching", 0))
        with self.inner.transfer(what, total) as moved:
            yield told


@contextmanager
def loading(tell: Tell) -> Iterator[Progress]:
    """Give a function to call, from any thread, with what is being done now."""
    began = time.monotonic()
    if not sys.stderr.isatty():
        yield _staged(_log_line, tell)
    else:
        with Console(stderr=True).status("loading the model") as status:

            def show(doing: str) -> None:
                status.update(f"{doing} ({time.monotonic() - began:.0f} s)")

            yield _staged(show, tell)
    log.info("loaded", seconds=round(time.monotonic() - began, 1))


def _staged(say: Callable[[str], None], tell: Tell) -> Progress:
    def progress(doing: str | Stage) -> None:
        stage = doing if isinstance(doing, Stage) else Stage("loading", text=doing)
        tell(stage)
        if stage.text:
            say(stage.text)

    return progress


def _log_line(doing: str) -> None:
    log.info("loading", doing=doing)
