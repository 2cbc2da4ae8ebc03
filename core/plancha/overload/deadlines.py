"""When somebody's patience ends: in the queue, and for the whole request."""

from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import Literal

import attrs

from plancha.contracts import Site
from plancha.failure import Failure, timed_out
from plancha.sequence import Sequence

Kind = Literal["queue", "request"]
Entry = tuple[float, int, Kind]
"""When it passes, whose stream it is, and what it is about."""

FEW = 64
"""Entries that are not worth looking through for those that matter no more."""


@attrs.define(kw_only=True, eq=False)
class Deadlines:
    """A heap. Entries of sequences that have ended, or begun in time, are dropped later.

    The queue's deadline is the site's, from acceptance until it has `begun`; the request's is its
    own `timeout_s`, from acceptance to its end.
    """

    site: Site
    alive: Mapping[int, Sequence]  # by stream: accepted and not ended
    retry_after_s: Callable[[str, float], int]  # what to tell whom the queue made wait too long
    _heap: list[Entry] = attrs.field(factory=list, init=False)

    def watch(self, sequence: Sequence) -> None:
        """It was accepted, and is `alive`."""
        if self.site.queue_timeout_s:
            self._push(sequence, self.site.queue_timeout_s, "queue")
        if sequence.request.timeout_s is not None:
            self._push(sequence, sequence.request.timeout_s, "request")

    @property
    def next_s(self) -> float | None:
        """When the next one passes that matters; None: there is none."""
        while self._heap and not self._matters(self._heap[0]):
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def passed(self, now: float) -> Iterator[tuple[Sequence, Failure]]:
        """Whose time is over, and what to tell them; whoever asks ends them."""
        while self._heap and self._heap[0][0] <= now:
            entry = heappop(self._heap)
            if self._matters(entry):
                sequence = self.alive[entry[1]]
                late = self._left_waiting if entry[2] == "queue" else _unfinished
                yield sequence, late(sequence, now)

    def _push(self, sequence: Sequence, timeout_s: float, kind: Kind) -> None:
        # A sequence has two entries at most; those of short requests with long timeouts pile up.
        if len(self._heap) > max(FEW, 4 * len(self.alive)):
            self._heap = [entry for entry in self._heap if self._matters(entry)]
            heapify(self._heap)
        heappush(self._heap, (sequence.arrived_s + timeout_s, sequence.stream, kind))

    def _matters(self, entry: Entry) -> bool:
        sequence = self.alive.get(entry[1])
        return sequence is not None and not (entry[2] == "queue" and sequence.begun)

    def _left_waiting(self, sequence: Sequence, now: float) -> Failure:
        return Failure(
            "unavailable",
            f"The request waited for {now - sequence.arrived_s:.1f} s and its turn did not come.",
            None,
            "queue_timeout",
            self.retry_after_s(sequence.tenant, now),
        )


def _unfinished(sequence: Sequence, now: float) -> Failure:
    assert sequence.request.timeout_s is not None
    return timed_out(sequence.request.timeout_s)
