"""When a process that has ended is started again, and when that is no use."""

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 10.0
"""Between an end and the next start: twice as long each time, until one was well for a while."""

HEALTHY_S = 60.0
"""So long a process must have done its work for its end to be the first of a new row."""

MOST_TRIES = 4
"""So many in a row that end before any was ready; whoever cannot even begin never will."""


class Restarts:
    """The processes that have one place, one after another. `now` is a monotonic clock's seconds.

    A place whose process was ready once is never given up: what it needs was there and may come
    back, and whoever asks is told meanwhile.
    """

    def __init__(self) -> None:
        self.ever_ready = False
        self.tries = 0  # that have ended; of a place that was never ready
        self._pause_s = FIRST_PAUSE_S
        self._ready_s: float | None = None  # since then the one that runs does its work

    def ready(self, now: float) -> None:
        """The process that runs does its work. May be said again."""
        self.ever_ready = True
        if self._ready_s is None:
            self._ready_s = now

    def ended(self, now: float) -> float | None:
        """It is gone: for how many seconds to wait before the next one; None: give up."""
        since, self._ready_s = self._ready_s, None
        if since is not None and now - since >= HEALTHY_S:
            self._pause_s = FIRST_PAUSE_S
        if not self.ever_ready:
            self.tries += 1
            if self.tries >= MOST_TRIES:
                return None
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, LONGEST_PAUSE_S)
        return pause_s
