"""A `plancha` command on a terminal of its own, and what somebody in front of it sees."""

import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pexpect
import pyte

HANG_S = 60.0
KEPT_LINES = 200

SIZE_OF_ANOTHER = ("COLUMNS", "LINES")
"""What GNU readline, once it is loaded, says of the terminal that the tests run in."""


class Terminal:
    """A real pseudo-terminal with a real emulator behind it."""

    def __init__(
        self, *words: object, environment: Mapping[str, str], rows: int = 24, columns: int = 80
    ) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=KEPT_LINES)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("OPENAI_") and name not in SIZE_OF_ANOTHER
        }
        self.child: pexpect.spawn[bytes] = pexpect.spawn(
            sys.executable,
            ["-m", "plancha_app", *map(str, words)],
            dimensions=(rows, columns),
            env={**inherited, "TERM": "xterm-256color", **environment},
            timeout=HANG_S,
        )

    @property
    def text(self) -> str:
        """Every line that has been shown, without the spaces at its end."""
        gone = ["".join(line[x].data for x in sorted(line)) for line in self.screen.history.top]
        return "\n".join(line.rstrip() for line in [*gone, *self.screen.display])

    def until(self, pattern: str) -> str:
        """What is on the screen once it matches; the hang guard is no expectation."""
        while re.search(pattern, self.text) is None:
            self._read()
        return self.text

    def send(self, typed: str) -> None:
        self.child.send(typed)

    def interrupt(self) -> None:
        self.child.send("\x03")

    def resize(self, rows: int, columns: int) -> None:
        self.screen.resize(rows, columns)
        self.child.setwinsize(rows, columns)

    def end(self) -> int:
        """The exit code, once it has ended by itself; -n when a signal ended it."""
        while True:
            try:
                self._read()
            except pexpect.EOF:
                break
        self.child.wait()
        status = self.child.exitstatus
        return int(-(self.child.signalstatus or 0) if status is None else status)

    def _read(self) -> None:
        try:
            found = self.child.read_nonblocking(4096, timeout=HANG_S)
        except pexpect.TIMEOUT:
            raise AssertionError(f"nothing more was shown after:\n{self.text}") from None
        self.raw += found
        self._stream.feed(found)


@contextmanager
def typed(
    *words: object, environment: Mapping[str, str] | None = None, rows: int = 24, columns: int = 80
) -> Iterator[Terminal]:
    """`plancha WORDS` on a terminal; killed at the end, if it still runs."""
    terminal = Terminal(*words, environment=environment or {}, rows=rows, columns=columns)
    try:
        yield terminal
    finally:
        if terminal.child.isalive():
            terminal.child.kill(signal.SIGKILL)
        terminal.child.close()
