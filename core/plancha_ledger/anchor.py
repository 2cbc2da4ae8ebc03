"""The anchor: a file, best kept elsewhere, that remembers how far the chain had come."""

import errno
import hmac
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import attrs
import orjson
import structlog

from plancha.contracts import LoadError
from plancha.ledger import LedgerError
from plancha_ledger.batch import START, Head
from plancha_ledger.entry import MAC_BYTES, microseconds

log = structlog.get_logger()

NEWLINE = b"\n"
BLOCK_BYTES = 65536
PATIENCE_S = 1.0
"""For one line, once: while that is not written, nobody waits for another."""

PURPOSE = b"plancha ledger anchor\n"  # no row's signature begins so


@attrs.frozen
class Anchored:
    """A line: at `at_us` (wall clock, microseconds) the last row of `writer` was `head`."""

    writer: str
    head: Head
    at_us: int


def line_of(key: bytes, anchored: Anchored) -> bytes:
    """One line of JSON, signed by itself: any line may be lost without harm to the others."""
    fields = {
        "writer": anchored.writer,
        "number": anchored.head.number,
        "mac": anchored.head.mac.hex(),
        "at_us": anchored.at_us,
    }
    return orjson.dumps({**fields, "seal": _seal(key, fields)}) + NEWLINE


def anchored_in(key: bytes, line: bytes) -> Anchored:
    """What a line says. Raises ValueError unless it is exactly as it was written."""
    try:
        fields = orjson.loads(line)
        mac = bytes.fromhex(fields["mac"])
        anchored = Anchored(fields["writer"], Head(fields["number"], mac), fields["at_us"])
        right = len(mac) == MAC_BYTES and line == line_of(key, anchored)
    except (ValueError, TypeError, KeyError):
        raise ValueError("is incomplete, or no line of an anchor") from None
    if not right:
        raise ValueError("was edited, or written with another key")
    return anchored


def _seal(key: bytes, fields: dict[str, object]) -> str:
    return hmac.digest(key, PURPOSE + orjson.dumps(list(fields.values())), "sha256").hex()


def lines(path: Path) -> Iterator[bytes]:
    """A file's lines with their ends. Raises `LedgerError` when it cannot be read."""
    try:
        with path.open("rb") as file:
            yield from file
    except OSError as error:
        raise LedgerError(f"{path}: the anchor cannot be read: {error.strerror}") from None


@attrs.define
class Anchor:
    """One writer's end of the file; others may append to it at the same time.

    Lines are not forced to the disk: an anchor that is behind after a power cut is no finding,
    and one that is ahead cannot be, since the rows are durable before.
    """

    path: Path
    key: bytes = attrs.field(repr=False)
    writer: str
    wall: Callable[[], float] = time.time  # Unix seconds
    _remembered: Head = attrs.field(default=START, init=False)
    _appending: Thread | None = attrs.field(default=None, init=False)

    def remember(self, head: Head) -> None:
        """Append the head, unless it is remembered already.

        Where that fails, or another machine's disk does not answer, the log says so, and the next
        head, which stands for all rows before it, makes up for it: no request has to wait for a
        file that only an auditor reads. One caller at a time.
        """
        if head == self._remembered or (self._appending and self._appending.is_alive()):
            return
        self._appending = Thread(target=self._try, args=(head,), name="anchor", daemon=True)
        self._appending.start()
        self._appending.join(PATIENCE_S)
        if self._appending.is_alive():
            log.warning("ledger_anchor_behind", path=str(self.path), reason="no answer in time")

    def _try(self, head: Head) -> None:
        try:
            self.append(head)
        except OSError as error:
            log.warning("ledger_anchor_behind", path=str(self.path), reason=error.strerror)
        else:
            self._remembered = head

    def append(self, head: Head) -> None:
        """Remember the head. Raises OSError, and leaves the file as it was if it still can."""
        line = line_of(self.key, Anchored(self.writer, head, microseconds(self.wall())))
        descriptor = self._opened()
        try:
            size = os.fstat(descriptor).st_size
            whole = size == 0 or os.pread(descriptor, 1, size - 1) == NEWLINE
            line = line if whole else NEWLINE + line  # after a line that a crash has cut
            if os.write(descriptor, line) != len(line):
                os.ftruncate(descriptor, size)
                raise OSError(errno.ENOSPC, "no room for a whole line")
        finally:
            os.close(descriptor)

    def compare(self, anchored: Head, there: bytes | None) -> None:
        """Raises `LoadError` unless the row with the number of `anchored` has its MAC, `there`."""
        row = f"row {anchored.number} of {self.writer}"
        if there is None:
            wrong = f"{row} is not in the ledger: its end was cut off, or it is an older copy"
        elif there != anchored.mac:
            wrong = f"{row} in the ledger is another one"
        else:
            self._remembered = anchored
            return
        raise LoadError(
            f"{self.path}: the anchor remembers more than there is: {wrong}. `plancha ledger "
            "verify` tells all; to go on with this ledger all the same, move the anchor away"
        )

    def last(self) -> Head | None:
        """The last head of this writer that is remembered; None: none. Makes the file.

        Raises OSError when that, or to read it, cannot be done.

        Lines that are not as they were written are passed over: a crash may have cut the last one,
        and to find the others is what `verify` is for.
        """
        os.close(self._opened())
        for line in _lines_backwards(self.path):
            try:
                anchored = anchored_in(self.key, line)
            except ValueError:
                continue
            if anchored.writer == self.writer:
                return anchored.head
        return None

    def _opened(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)


def _lines_backwards(path: Path) -> Iterator[bytes]:
    """The last line first, each with its end, without reading more of the file than is taken."""
    with path.open("rb") as file:
        place = file.seek(0, os.SEEK_END)
        rest = b""
        while place > 0:
            size = min(BLOCK_BYTES, place)
            place -= size
            file.seek(place)
            rest, *whole = (file.read(size) + rest).splitlines(keepends=True)
            yield from reversed(whole)
        if rest:
            yield rest
