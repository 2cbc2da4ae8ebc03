"""What could not be kept: counted, and told in the log now and then, without a word of it."""

import threading
import time
from collections.abc import Callable

import attrs
import structlog

log = structlog.get_logger()

TELL_EVERY_S = 10.0


@attrs.define(eq=False)
class Losses:
    """Called from any thread."""

    clock: Callable[[], float] = time.monotonic
    total: int = 0
    _untold: int = 0
    _reason: str = ""
    _told_at: float | None = None
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def add(self, reason: str) -> None:
        """One request's texts are lost. The first is told at once."""
        now = self.clock()
        with self._lock:
            self.total += 1
            self._untold += 1
            self._reason = reason
            due = self._told_at is None or now - self._told_at >= TELL_EVERY_S
        if due:
            self.tell()

    def tell(self) -> None:
        """Those that nobody has been told of yet, in one line."""
        with self._lock:
            requests, self._untold = self._untold, 0
            self._told_at = self.clock()
        if requests:
            log.error("texts_not_kept", requests=requests, in_all=self.total, reason=self._reason)
