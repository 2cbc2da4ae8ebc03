"""Where answers appear: on a terminal with their figures below, elsewhere as nothing but text."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status
from rich.text import Text

from plancha_app.chat.answer import Answer, Piece
from plancha_app.chat.wrapping import Wrapping
from plancha_app.complaints import printable

DIM, PLAIN = "\x1b[2m", "\x1b[0m"
TAB = "    "


class Screen:
    """Writes to stdout, each piece at once."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._is_terminal = self._console.is_terminal and not self._console.is_dumb_terminal
        self._wrapping = Wrapping()
        self._ends_line = True
        self._thinks = False
        self._waiting: Status | None = None

    @contextmanager
    def answering(self) -> Iterator[None]:
        """While an answer comes; it ends with the end of a line, whatever happens."""
        self._ends_line, self._thinks, self._wrapping = True, False, Wrapping()
        try:  # from here on: Ctrl-C can come at once
            if self._is_terminal:
                self._waiting = self._console.status("", spinner_style="dim")
                self._waiting.start()
            yield
        finally:
            self._wait_no_more()
            if not self._ends_line:
                self._write("\n")
                self._ends_line = True

    def show(self, piece: Piece) -> None:
        """What others send can move no cursor and colour nothing."""
        self._wait_no_more()
        if not self._is_terminal:
            if not piece.thought:
                text = printable(piece.text, keep="\n\t") if sys.stdout.isatty() else piece.text
                self._write(text)  # to a terminal that rich takes for none too
                self._ends_line = text.endswith("\n")
            return
        text = printable(piece.text, keep="\n\t")
        if self._thinks and not piece.thought:
            text = f"\n\n{text.lstrip()}"
        self._thinks = piece.thought
        text = self._wrapping.wrap(text.replace("\t", TAB), self._console.width)
        self._write(f"{DIM}{text}{PLAIN}" if piece.thought else text)
        self._ends_line = text.endswith("\n")

    def _wait_no_more(self) -> None:
        if self._waiting is not None:
            self._waiting.stop()
            self._waiting = None

    def note(self, text: str) -> None:
        """In passing; nothing where only text is wanted."""
        if self._console.is_terminal:
            self._console.print(Text(printable(text, keep="\n"), style="dim"))

    def complain(self, text: str) -> None:
        """What went wrong, between two messages."""
        self._console.print(Text(printable(text, keep="\n"), style="red"))

    def figures(self, answer: Answer, interrupted: bool = False) -> None:
        """How fast it was, and how it ended if not by itself."""
        parts = []
        if answer.first_s is not None:
            parts.append(f"first token {answer.first_s:.2f} s")
        if answer.tokens_per_s is not None:
            parts.append(f"{answer.tokens_per_s:,.1f} tokens/s")
        if answer.tokens:
            about = "" if answer.is_counted else "about "
            parts.append(f"{about}{answer.tokens} token{'s' if answer.tokens != 1 else ''}")
        if interrupted:
            parts.append("interrupted")
        elif answer.finish_reason == "length":
            parts.append("cut off at the token limit")
        elif answer.finish_reason not in (None, "stop"):
            parts.append(f"ended by {answer.finish_reason}")
        self.note(" · ".join(parts) + ("\n" if parts else ""))

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
