"""A message as it is typed: a line, or several, with the editing that `readline` gives."""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from plancha_app.chat.history import History

FENCE = '"""'
PROMPT, MORE = ">>> ", "... "

ReadLine = Callable[[str], str]


class Typed(NamedTuple):
    """A message, or a command: one line that begins with a slash."""

    text: str
    is_command: bool = False


def read_message(read_line: ReadLine) -> Typed:
    r"""One message: a line, lines that end with \, or what is between two \"\"\".

    Raises `EOFError` and `KeyboardInterrupt` as `input` does.
    """
    line = read_line(PROMPT)
    if line.lstrip().startswith(FENCE):
        return Typed(_fenced(line.lstrip().removeprefix(FENCE), read_line))
    if line.startswith("/"):
        return Typed(line.strip(), is_command=True)
    lines = [line]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        lines.append(read_line(MORE))
    return Typed("\n".join(lines).strip())


def _fenced(line: str, read_line: ReadLine) -> str:
    lines = [line]
    while not lines[-1].rstrip().endswith(FENCE):
        lines.append(read_line(MORE))
    lines[-1] = lines[-1].rstrip().removesuffix(FENCE)
    return "\n".join(lines).strip("\n")


class Keyboard:
    """Reads lines from the terminal, with what was typed before at hand."""

    def __init__(self, history: History, commands: tuple[str, ...]) -> None:
        self._history = history
        self._readline = _readline()
        if self._readline is not None:
            self._readline.set_auto_history(False)
            for message in history.messages:
                self._readline.add_history(message)
            self._complete(commands)

    def read(self) -> Typed:
        """See `read_message`."""
        typed = read_message(lambda prompt: _clean(input(prompt)))
        if typed.text:
            is_like_a_command = typed.text.startswith("/") and not typed.is_command
            self._remember(f" {typed.text}" if is_like_a_command else typed.text)
        return typed

    def _remember(self, message: str) -> None:
        if self._readline is not None and self._history.messages[-1:] != [message]:
            self._readline.add_history(message)
        self._history.add(message)

    def _complete(self, commands: tuple[str, ...]) -> None:
        def completer(begun: str, number: int) -> str | None:
            found = [each for each in commands if begun.startswith("/") and each.startswith(begun)]
            return found[number] if number < len(found) else None

        self._readline.set_completer_delims(" ")
        self._readline.set_completer(completer)
        libedit = "libedit" in (self._readline.__doc__ or "")
        self._readline.parse_and_bind("bind ^I rl_complete" if libedit else "tab: complete")


def _readline() -> Any:
    """The module, where the platform has it and there is a terminal to edit on."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    try:
        import readline
    except ImportError:
        return None
    return readline


def _clean(text: str) -> str:
    """Bytes that the terminal sent and that are no text have become halves of characters."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
