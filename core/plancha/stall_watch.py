"""Whether a worker still makes steps while somebody waits for one."""

LOOKS = 16
"""So often a gateway looks within the time that a step may take."""


class StallWatch:
    """Looks at the worker's count of steps now and then, which costs a step nothing.

    `stalled` from `deadline_s` after the last step that was seen, if somebody has waited ever
    since, until there is another step. An idle worker is well, and 0 seconds are for ever.
    """

    def __init__(self, deadline_s: float) -> None:
        self.stalled = False
        self._deadline_s = deadline_s
        self._steps: int | None = -1  # known by the last look
        self._since_s = 0.0  # nobody has waited for the next one longer than since then

    @property
    def interval_s(self) -> float:
        """Between two looks."""
        return self._deadline_s / LOOKS

    def look(self, steps: int | None, waited_for: bool, now: float) -> None:
        """`steps` have ended; None: it has not said yet. `waited_for`: somebody wants another."""
        moving = steps != self._steps
        if moving or not (waited_for or self.stalled):
            self._steps, self._since_s = steps, now
        self.stalled = now - self._since_s >= self._deadline_s > 0
