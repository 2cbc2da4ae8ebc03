"""One tier: its tenants held even, how long each of its sequences has waited, and who aged."""

import attrs

from plancha.sequence import Sequence
from plancha_schedulers.fair_queue import FairQueue


@attrs.define(eq=False)
class Tier:
    """At most one sequence of it runs by its age at a time; that one gives way to nobody."""

    queue: FairQueue
    aged: Sequence | None = None  # goes before everybody now
    running_aged: Sequence | None = None  # did so, and has not ended
    _since: dict[Sequence, float] = attrs.field(factory=dict, init=False)  # longest wait first

    @property
    def waits(self) -> bool:
        """Whether somebody of it does."""
        return bool(self._since)

    def add(self, sequence: Sequence, now: float) -> None:
        """It waits from now on."""
        self._leaves_batch(sequence)
        self._since[sequence] = now
        self.queue.add(sequence, now)

    def joined(self, sequence: Sequence, cached: int) -> None:
        """It waits no more; its tenant pays here, also if it went first by its age."""
        del self._since[sequence]
        if sequence is self.aged:
            self.running_aged = sequence
        self.queue.joined(sequence, cached)

    def remove(self, sequence: Sequence) -> None:
        """It ended, waiting or running."""
        self._leaves_batch(sequence)
        self._since.pop(sequence, None)
        self.queue.remove(sequence)

    def age(self, now: float, max_wait_s: float) -> Sequence | None:
        """Who goes first by its age now: the first head, in the queue's order, that waited so long.

        Nobody while another one runs so.
        """
        self.aged = None
        if self.running_aged is not None and self.running_aged.slot is None:
            self.running_aged = None  # it was paused: it has no place that others could wait for
        if self.running_aged is None and self._longest_s(now) >= max_wait_s:
            due = (head for head in self.queue.heads() if now - self._since[head] >= max_wait_s)
            self.aged = next(due, None)
        return self.aged

    def _longest_s(self, now: float) -> float:
        return now - next(iter(self._since.values()), now)

    def _leaves_batch(self, sequence: Sequence) -> None:
        if sequence is self.running_aged:
            self.running_aged = None
