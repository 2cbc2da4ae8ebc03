"""Server-sent events out of a byte stream (WHATWG HTML, 9.2.6), however it is cut into chunks."""

from typing import NamedTuple

MOST_BYTES = 64 << 20
"""Of one event: a stream that never ends a line must end somewhere."""


class Event(NamedTuple):
    """One event; `name` is empty where the stream gives none."""

    name: str
    data: bytes


class EventStreamError(ValueError):
    """Bytes that are no event stream."""


class EventStream:
    """Give it chunks, take events. Comments, ids and retry times are read past."""

    def __init__(self) -> None:
        self._rest = b""
        self._name = ""
        self._data: list[bytes] = []
        self._began = False

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that are complete now. Raises `EventStreamError`."""
        text = self._rest + chunk
        if not self._began and len(text) >= 3:
            text, self._began = text.removeprefix(b"\xef\xbb\xbf"), True
        if b"\r" in text:
            # A carriage return at the end may be half of a line's end.
            held = b"\r" if text.endswith(b"\r") else b""
            text = text.removesuffix(held).replace(b"\r\n", b"\n").replace(b"\r", b"\n") + held
        *lines, self._rest = text.split(b"\n")
        if len(self._rest) > MOST_BYTES:
            raise EventStreamError("an event without an end")
        return [event for line in lines if (event := self._line(line)) is not None]

    def end(self) -> list[Event]:
        """What a stream that breaks off had begun: some servers leave out the last empty line."""
        events = self.feed(b"\n\n")
        self._rest = b""
        return events

    def _line(self, line: bytes) -> Event | None:
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        return None

    def _dispatch(self) -> Event | None:
        name, data = self._name, self._data
        self._name, self._data = "", []
        return Event(name, b"\n".join(data)) if data else None
