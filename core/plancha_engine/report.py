"""How a long task, such as a download, tells whoever waits for it what it is doing."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

Moved = Callable[[int], None]
"""Takes the bytes moved so far, in all."""


class Report(Protocol):
    """Called from the thread that does the task."""

    def say(self, text: str) -> None:
        """One line: what begins, or was found."""
        ...

    def transfer(self, what: str, total: int) -> AbstractContextManager[Moved]:
        """A transfer of `total` bytes, as long as the context is open."""
        ...


class ConsoleReport:
    """A progress bar on a terminal; plain lines where output is not one."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lines = LineReport(self._print)

    def say(self, text: str) -> None:
        self._print(text)

    @contextmanager
    def transfer(self, what: str, total: int) -> Iterator[Moved]:
        if not self._console.is_terminal:
            with self._lines.transfer(what, total) as moved:
                yield moved
            return
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self._console) as progress:
            task = progress.add_task(what, total=total)
            yield lambda done: progress.update(task, completed=done)

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class LineReport:
    """Lines only, one each tenth of a transfer: for logs, and for `Executor.load`."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    def say(self, text: str) -> None:
        self._say(text)

    @contextmanager
    def transfer(self, what: str, total: int) -> Iterator[Moved]:
        tenths_said = 0

        def moved(done: int) -> None:
            nonlocal tenths_said
            tenths = done * 10 // max(total, 1)
            if tenths > tenths_said:
                tenths_said = tenths
                self._say(f"{what}: {done / 1e6:.0f} of {total / 1e6:.0f} MB")

        self._say(f"{what}: {total / 1e6:.0f} MB")
        yield moved
