"""The task that brings the journal into the ledger, and tells gateways of what is durable."""

from collections.abc import Sequence

import anyio
import structlog
from anyio.streams.memory import MemoryObjectSendStream

from plancha.accounting.journal import Journal
from plancha.contracts import Clock
from plancha.inbox import Inbox, LedgerTurned
from plancha.ledger import Closed, Counts, Ledger, LedgerError, LedgerLost, Opened
from plancha.messages import Downstream, Settled
from plancha.record import Record

log = structlog.get_logger()

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
"""Between two tries of a write that failed: twice as long each time."""

LAST_WRITES_S = 10.0
"""What a worker that ends has for all that is not written yet."""


class NoLedger:
    """A `plancha.ledger.Ledger` for a worker that writes nothing down."""

    async def write(
        self, opened: Sequence[Opened], counts: Sequence[Counts], closed: Sequence[Closed]
    ) -> None:
        """Nothing to do."""

    async def find(self, request: str) -> Record | None:
        """Nothing is known."""
        return None

    async def close(self) -> None:
        """Nothing to give up."""


async def accounting(
    journal: Journal,
    ledger: Ledger,
    inbox: MemoryObjectSendStream[Inbox],
    downstream: MemoryObjectSendStream[Downstream],
    clock: Clock,
) -> None:
    """Task: one write at a time; what comes while it runs goes into the next, all of it.

    How long a write takes holds up nobody but who waits for it.
    """
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_writing, journal, ledger, clock)
        tasks.start_soon(_watching, journal, clock)
        tasks.start_soon(_turning, journal, inbox)
        while True:
            await journal.ready.wait()
            bills = journal.take_bills()
            await downstream.send(Settled(bills))


async def write_the_rest(journal: Journal, ledger: Ledger, clock: Clock) -> None:
    """Whatever a worker that ends has not written, for `LAST_WRITES_S` at most. Never cancelled."""
    with anyio.move_on_after(LAST_WRITES_S, shield=True):
        await _write_all(journal, ledger, clock)
    if journal.pending:
        log.error("records_not_written", records=journal.pending)


async def _writing(journal: Journal, ledger: Ledger, clock: Clock) -> None:
    while True:
        await journal.filled.wait()
        await _write_all(journal, ledger, clock)


async def _write_all(journal: Journal, ledger: Ledger, clock: Clock) -> None:
    """Until there is nothing left, or nothing can ever be written any more."""
    pause_s = 0.0
    while (entries := journal.begin(clock())) is not None:
        began_s = clock()
        try:
            await ledger.write(entries.opened, entries.counts, entries.closed)
        except LedgerLost as lost:
            log.error("ledger_lost", reason=str(lost), records=journal.pending)
            journal.lose()
        except Exception as error:  # whatever goes wrong in a store is no end of the worker
            if not pause_s:
                reason = str(error) if isinstance(error, LedgerError) else type(error).__name__
                log.warning("ledger_write_failed", reason=reason, records=journal.pending)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S) or FIRST_PAUSE_S
            await anyio.sleep(pause_s)
        else:
            pause_s = 0.0
            journal.write_seconds.observe(clock() - began_s)
            journal.written(entries)


async def _watching(journal: Journal, clock: Clock) -> None:
    """Notice a write that hangs, or fails again and again."""
    while True:
        await journal.begun.wait()
        if journal.began_s is None:
            continue
        await anyio.sleep(max(0.0, journal.began_s + journal.patience_s - clock()))
        journal.look(clock())
        if not journal.writable:
            await journal.done.wait()


async def _turning(journal: Journal, inbox: MemoryObjectSendStream[Inbox]) -> None:
    """Whoever looks at the load hears that the ledger is not writable, or is again."""
    while True:
        await journal.turned.wait()
        journal.turned = anyio.Event()
        if journal.writable:
            log.info("ledger_writable")
        elif not journal.lost:
            log.error("ledger_unwritable", records=journal.pending)
        await inbox.send(LedgerTurned())
