"""What is to be written and is not durable yet, in memory and in order."""

from collections.abc import Iterable

import anyio
import attrs

from plancha.failure import Failure
from plancha.ledger import Closed, Counts, Opened
from plancha.messages import Bill
from plancha.metrics.histogram import Histogram

PATIENCE_S = 5.0
"""A ledger that has written nothing for so long, though it should have, is not waited for."""

RETRY_AFTER_S = 5
WRITE_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0)

UNAVAILABLE = Failure(
    "unavailable",
    "Usage cannot be recorded at the moment, so nothing new is accepted; try again.",
    None,
    "ledger_unavailable",
    RETRY_AFTER_S,
)
LOST = Failure(
    "unavailable",
    "Another server records usage in this one's place; this one takes nothing any more.",
    None,
    "ledger_unavailable",
)


@attrs.frozen
class Entries:
    """What one write is to make durable."""

    opened: tuple[Opened, ...]
    counts: tuple[Counts, ...]
    closed: tuple[Closed, ...]


@attrs.define(eq=False)
class _End:
    closed: Closed
    bill: Bill
    told: bool = False  # its client need not wait any more


@attrs.define(eq=False)
class Journal:
    """Filled by the scheduling task, emptied by `accounting`; both on one event loop.

    Nothing is forgotten until it is `written`, so a write that failed, or of which nobody knows
    how it went, is done again as part of the next.
    """

    patience_s: float = PATIENCE_S
    writable: bool = attrs.field(default=True, init=False)
    lost: bool = attrs.field(default=False, init=False)  # to another writer, for good
    write_seconds: Histogram = attrs.field(factory=lambda: Histogram(*WRITE_S), init=False)
    filled: anyio.Event = attrs.field(factory=anyio.Event, init=False)  # since the last `begin`
    turned: anyio.Event = attrs.field(factory=anyio.Event, init=False)  # `writable` has changed
    ready: anyio.Event = attrs.field(factory=anyio.Event, init=False)  # `take_bills` has some
    begun: anyio.Event = attrs.field(factory=anyio.Event, init=False)  # something is not `written`
    done: anyio.Event = attrs.field(factory=anyio.Event, init=False)  # it is
    began_s: float | None = attrs.field(default=None, init=False)  # when, or the first that failed
    _opened: list[Opened] = attrs.field(factory=list, init=False)
    _counts: dict[str, Counts] = attrs.field(factory=dict, init=False)  # the latest, by request
    _ends: list[_End] = attrs.field(factory=list, init=False)
    _bills: list[Bill] = attrs.field(factory=list, init=False)  # to be told

    @property
    def refusal(self) -> Failure | None:
        """Why no request can be accepted now."""
        if self.writable:
            return None
        return LOST if self.lost else UNAVAILABLE

    @property
    def pending(self) -> int:
        """Records that are not durable yet; of running requests' counts, one a request."""
        return len(self._opened) + len(self._counts) + len(self._ends)

    def open(self, opened: Opened) -> None:
        """A request was accepted."""
        self._opened.append(opened)
        self.filled.set()

    def count(self, counts: Iterable[Counts]) -> None:
        """Requests that go on have cost so much."""
        for each in counts:
            self._counts[each.request] = each
        if self._counts:
            self.filled.set()

    def close(self, closed: Closed, bill: Bill) -> None:
        """A request has ended; its client is told once that is durable, or need not be."""
        self._counts.pop(closed.counts.request, None)
        self._ends.append(_End(closed, bill))
        self.filled.set()
        if not self.writable:
            self._tell_all()

    def begin(self, now: float) -> Entries | None:
        """What to write now; None: nothing, until `filled`."""
        self.filled = anyio.Event()
        if self.lost or not self.pending:
            return None
        if self.began_s is None:
            self.began_s, self.done = now, anyio.Event()
            self.begun.set()
        return Entries(
            tuple(self._opened),
            tuple(self._counts.values()),
            tuple(end.closed for end in self._ends),
        )

    def written(self, entries: Entries) -> None:
        """They are durable."""
        del self._opened[: len(entries.opened)]
        for counts in entries.counts:
            if self._counts.get(counts.request) is counts:
                del self._counts[counts.request]
        durable = self._ends[: len(entries.closed)]
        del self._ends[: len(entries.closed)]
        self._tell(durable)
        self.began_s, self.begun = None, anyio.Event()
        self.done.set()
        self._turn(True)

    def look(self, now: float) -> None:
        """Nobody waits any longer for a write that takes too long."""
        if self.began_s is not None and now - self.began_s >= self.patience_s:
            self._turn(False)

    def lose(self) -> None:
        """Nothing can ever be written any more."""
        self.lost = True
        self._turn(False)

    def take_bills(self) -> tuple[Bill, ...]:
        """Those of which clients may hear now."""
        self.ready = anyio.Event()
        bills, self._bills = tuple(self._bills), []
        return bills

    def _turn(self, writable: bool) -> None:
        if writable != self.writable:
            self.writable = writable
            self.turned.set()
        if not writable:
            self._tell_all()

    def _tell_all(self) -> None:
        self._tell(self._ends)

    def _tell(self, ends: list[_End]) -> None:
        for end in ends:
            if not end.told:
                end.told = True
                self._bills.append(end.bill)
        if self._bills:
            self.ready.set()
