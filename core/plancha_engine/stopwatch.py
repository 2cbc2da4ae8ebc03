"""Where the time of a step went."""

import time


class Stopwatch:
    """Laps by name: each call of `lap` books what has passed since the last one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._started = self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """Book the time since the last lap under `name`."""
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._last
        self._last = now

    @property
    def total(self) -> float:
        """Seconds from the beginning to the last lap."""
        return self._last - self._started
