"""A ledger in memory that does what a test wants it to."""

from collections.abc import Iterable, Sequence

import anyio
import anyio.lowlevel
import attrs

from plancha.ledger import Closed, Counts, LedgerError, Opened
from plancha.record import Record


@attrs.define(eq=False)
class MemoryLedger:
    """A `plancha.ledger.Ledger` whose rows are dictionaries by request.

    While `trouble` is set every write raises it. `hold` makes writes wait until `let_go`. `writes`
    are what each successful write was given.
    """

    trouble: Exception | None = None
    opened: dict[str, Opened] = attrs.field(factory=dict, init=False)
    counts: dict[str, Counts] = attrs.field(factory=dict, init=False)  # the latest
    closed: dict[str, Closed] = attrs.field(factory=dict, init=False)
    writes: list[tuple[int, int, int]] = attrs.field(factory=list, init=False)  # rows of each kind
    is_closed: bool = attrs.field(default=False, init=False)
    _gate: anyio.Event | None = attrs.field(default=None, init=False)

    def hold(self) -> None:
        """Writes hang from now on."""
        self._gate = anyio.Event()

    def let_go(self) -> None:
        """Those that hang go on."""
        if self._gate is not None:
            self._gate.set()
            self._gate = None

    async def write(
        self, opened: Sequence[Opened], counts: Sequence[Counts], closed: Sequence[Closed]
    ) -> None:
        """As the protocol says. Raises `AssertionError` for rows that contradict each other."""
        if self._gate is not None:
            await self._gate.wait()
        if self.trouble is not None:
            raise self.trouble
        await anyio.lowlevel.checkpoint()
        self._add(opened, counts, closed)
        self.writes.append((len(opened), len(counts), len(closed)))

    async def find(self, request: str) -> Record | None:
        """As the protocol says."""
        if isinstance(self.trouble, LedgerError):
            raise self.trouble
        opened = self.opened.get(request)
        if opened is None:
            return None
        closed = self.closed.get(request)
        counts = closed.counts if closed is not None else self.counts.get(request)
        record = Record(
            id=request,
            label=opened.label,
            tenant=opened.tenant,
            model=opened.model,
            created=int(opened.opened_s),
            input_tokens=counts.input_tokens if counts is not None else 0,
            cached_tokens=counts.cached_tokens if counts is not None else 0,
            output_tokens=counts.output_tokens if counts is not None else 0,
        )
        if closed is not None:
            record.state, record.outcome = "done", closed.outcome
            record.finished = int(closed.closed_s)
        return record

    async def close(self) -> None:
        """As the protocol says."""
        self.is_closed = True

    def _add(
        self, opened: Iterable[Opened], counts: Iterable[Counts], closed: Iterable[Closed]
    ) -> None:
        for row in opened:
            assert self.opened.setdefault(row.request, row) == row, f"{row} is not the first"
        for count in counts:
            assert count.request in self.opened, f"{count} of a request that was never opened"
            self.counts[count.request] = count
        for end in closed:
            request = end.counts.request
            assert request in self.opened, f"{end} of a request that was never opened"
            assert self.closed.setdefault(request, end) == end, f"{end} is not the first"
