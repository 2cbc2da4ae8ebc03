"""When a client that lags is given up, as plain policy that is told the time."""

import attrs

from plancha.failure import Failure, stalled


@attrs.define
class ReaderPatience:
    """How long a full connection's reader is waited for, once.

    It must take something within each `stall_timeout_s`, and enough for the connection to be full
    no more within `drain_timeout_s`: that is a least rate, as other servers demand one (240 bytes/s
    in ASP.NET's Kestrel, "MinResponseDataRate"). Otherwise who takes a byte now and then would hold
    what its answer takes up for as long as it likes.
    """

    stall_timeout_s: float
    drain_timeout_s: float
    _pending: int = attrs.field(default=0, init=False)  # bytes, when it took something last
    _took_s: float = attrs.field(default=0.0, init=False)  # that is when
    _full_s: float = attrs.field(default=0.0, init=False)  # since when it is full

    def begin(self, pending: int, now: float) -> None:
        """The connection is full, with so many bytes."""
        self._pending, self._took_s, self._full_s = pending, now, now

    def next_look_s(self, now: float) -> float:
        """In how many seconds to look again."""
        stalled_s = self._took_s + self.stall_timeout_s
        return max(0.0, min(stalled_s, self._full_s + self.drain_timeout_s) - now)

    def look(self, pending: int, now: float) -> Failure | None:
        """It is full still, with so many bytes; why to wait no longer, or None: wait on."""
        if now >= self._full_s + self.drain_timeout_s:
            return stalled(self.drain_timeout_s, "too little")
        if pending < self._pending:
            self._pending, self._took_s = pending, now
        elif now >= self._took_s + self.stall_timeout_s:
            return stalled(self.stall_timeout_s)
        return None
