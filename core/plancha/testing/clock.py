"""A clock that moves when told to."""

import attrs


@attrs.define
class FakeClock:
    """Call it for the time; `advance` it by hand."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass. Raises `ValueError` for a step back: a monotonic clock has none."""
        if seconds < 0:
            raise ValueError(f"advance({seconds}): a monotonic clock does not go back")
        self.now += seconds
