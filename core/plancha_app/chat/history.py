"""What was typed before, on this machine only: one JSON string a line, for nobody else to read."""

import os
from collections.abc import Mapping
from pathlib import Path

import orjson

MOST = 1000


def history_file(environment: Mapping[str, str] = os.environ) -> Path:
    """In the user's state folder (XDG)."""
    state = environment.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "plancha" / "chat_history"


class History:
    """The last messages, oldest first. A file that cannot be used is as good as none."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.messages: list[str] = []
        if path is not None:
            self.messages = _read(path)[-MOST:]

    def add(self, message: str) -> None:
        """Keep it, unless it is the last one again."""
        if self.messages[-1:] == [message]:
            return
        self.messages.append(message)
        if self._path is not None:
            _append(self._path, message)

    def close(self) -> None:
        """Cut the file to what is kept of it."""
        if self._path is None or len(self.messages) <= MOST:
            return
        kept = self._path.with_suffix(".new")
        try:
            kept.unlink(missing_ok=True)
            for message in _read(self._path)[-MOST:]:  # of other conversations too
                _append(kept, message)
            kept.replace(self._path)
        except OSError:
            return


def _read(path: Path) -> list[str]:
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            message = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(message, str):
            found.append(message)
    return found


def _append(path: Path, message: str) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with open(descriptor, "ab") as file:
            file.write(orjson.dumps(message, option=orjson.OPT_APPEND_NEWLINE))
    except OSError:
        return
