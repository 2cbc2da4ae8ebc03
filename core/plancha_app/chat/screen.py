"""Where answers appear: on a terminal with their figures below, elsewhere as nothing but text."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from plancha_app.chat.answer import Answer, Piece
from plancha_app.complaints import printable


class Screen:
    """Writes to stdout, each piece at once."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._ends_line = True

    @contextmanager
    def answering(self) -> Iterator[None]:
        """While an answer comes; it ends with the end of a line, whatever happens."""
        self._ends_line = True
        try:
            yield
        finally:
            if not self._ends_line:
                self._write("\n")
                self._ends_line = True

    def show(self, piece: Piece) -> None:
        """What others send can move no cursor and colour nothing."""
        text = printable(piece.text) if self._console.is_terminal else piece.text
        if piece.thought:
            if self._console.is_terminal:
                self._console.print(Text(text, style="dim italic"), end="")
                self._ends_line = text.endswith("\n")
            return
        self._write(text)
        self._ends_line = text.endswith("\n")

    def note(self, text: str) -> None:
        """In passing; nothing where only text is wanted."""
        if self._console.is_terminal:
            self._console.print(Text(printable(text), style="dim"))

    def complain(self, text: str) -> None:
        """What went wrong, between two messages."""
        self._console.print(Text(printable(text), style="red"))

    def figures(self, answer: Answer, interrupted: bool = False) -> None:
        """How fast it was, and how it ended if not by itself."""
        parts = []
        if answer.first_s is not None:
            parts.append(f"first token {answer.first_s:.2f} s")
        if answer.tokens_per_s is not None:
            parts.append(f"{answer.tokens_per_s:.1f} tokens/s")
        if answer.tokens:
            about = "" if answer.is_counted else "about "
            parts.append(f"{about}{answer.tokens} token{'s' if answer.tokens != 1 else ''}")
        if interrupted:
            parts.append("interrupted")
        elif answer.finish_reason == "length":
            parts.append("cut off at the limit of tokens")
        elif answer.finish_reason not in (None, "stop"):
            parts.append(f"ended by {answer.finish_reason}")
        self.note(" · ".join(parts))

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
