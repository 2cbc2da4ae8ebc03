"""The ledger in a PostgreSQL database, shared by several writers, each with a chain of its own."""

import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import asyncpg

from plancha.contracts import LoadError
from plancha.ledger import Closed, Counts, LedgerError, LedgerLost, Opened
from plancha.record import Record
from plancha_ledger.anchor import Anchor
from plancha_ledger.batch import START, Head, Pen, keys_of, new_entries
from plancha_ledger.entry import COLUMNS, Attempt, Entry, entry_of, row
from plancha_ledger.key import key_check
from plancha_ledger.postgres_session import connect, free_ghost, lock_number, shown_dsn
from plancha_ledger.running import (
    Changes,
    Running,
    abandoned,
    apply,
    changes_of,
    counts_of,
    record_of,
    vouched,
)
from plancha_ledger.schema import ENTRY, POSTGRES_TYPES, TABLES, VERSION, check_version

PATIENCE_S = 5.0
"""How long one call may take, a new connection included."""
TABLES_LOCK = lock_number("tables")

FAILURES = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError)  # time-outs are OSErrors

NUMBERED = ", ".join(f"${number}" for number in range(1, len(COLUMNS) + 1))
INSERT = f"INSERT INTO ledger_entries ({ENTRY}) VALUES ({NUMBERED})"
RUN = """INSERT INTO ledger_running VALUES ($1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT (request, attempt) DO UPDATE SET input_tokens = excluded.input_tokens,
    cached_tokens = excluded.cached_tokens, output_tokens = excluded.output_tokens,
    mac = excluded.mac"""
END_RUNNING = "DELETE FROM ledger_running WHERE request = $1 AND attempt = $2"
RUNNING = """SELECT request, attempt, input_tokens, cached_tokens, output_tokens, mac
    FROM ledger_running"""
KNOWN = f"""SELECT {", ".join(f"entry.{name}" for name in COLUMNS)}
    FROM unnest($1::text[], $2::bigint[]) AS asked (request, attempt) JOIN ledger_entries AS entry
    ON entry.request = asked.request AND entry.attempt = asked.attempt"""
LAST = f"SELECT {ENTRY} FROM ledger_entries WHERE writer = $1 ORDER BY number DESC LIMIT 1"
TAKE_OVER = """INSERT INTO ledger_writers VALUES ($1, 1, $2)
    ON CONFLICT (writer) DO UPDATE SET epoch = ledger_writers.epoch + 1, holder = excluded.holder
    RETURNING epoch"""
EPOCH = "SELECT epoch FROM ledger_writers WHERE writer = $1"


class PostgresLedger:
    """A `plancha.ledger.Ledger`. Needs a session of its own: no pooler that shares them.

    The writer's lock is the session's advisory lock; what keeps a stale writer out is the epoch,
    read in every transaction. A connection that is lost is made again by the next call.
    """

    def __init__(self, dsn: str, anchor: Anchor, wall: Callable[[], float] = time.time) -> None:
        self.where = shown_dsn(dsn)
        self.anchor = anchor
        self.wall = wall
        self.epoch = 0
        self._dsn = dsn
        self._turn = anyio.Lock()
        self._db: Any = None
        self._session = 0  # the server's process that held the lock for us last
        self._running: dict[Attempt, Running] = {}
        self._head: Head | None = None
        self._lost = False

    async def open(self) -> None:
        """Take the lock, and close what the writer before has left open. Raises `LoadError`."""
        try:
            db = self._db = await connect(self._dsn, self.anchor.writer)
            async with db.transaction():
                await db.execute("SELECT pg_advisory_xact_lock($1)", TABLES_LOCK)
                for table in TABLES:
                    await db.execute(table.format_map(POSTGRES_TYPES))
                await self._check_version(db)
            await self._take_lock(db)
            await self._check_anchor(db)
            async with db.transaction():
                await self._take_over(db)
        except FAILURES as error:
            await self.close()
            raise LoadError(f"{self.where}: {_said(error)}") from None
        except (LedgerError, ValueError) as error:  # of what was left open
            await self.close()
            raise LoadError(str(error)) from None
        except BaseException:
            await self.close()
            raise
        await self._remember()

    async def write(
        self, opened: Sequence[Opened], counts: Sequence[Counts], closed: Sequence[Closed]
    ) -> None:
        """As the protocol says."""
        async with self._connected() as db:
            async with db.transaction():
                await self._check_epoch(db, f"{EPOCH} FOR SHARE")
                head, changes = await self._write(db, opened, counts, closed)
            self._head = head
            apply(changes, self._running)
            await self._remember()

    async def find(self, request: str) -> Record | None:
        """As the protocol says; waits for the write that runs."""
        async with self._connected() as db:
            query = f"SELECT {ENTRY} FROM ledger_entries WHERE request = $1"
            entries = self._entries(await db.fetch(query, request))
            latest = max((entry.attempt for entry in entries), default=0)
            where = " WHERE request = $1 AND attempt = $2"
            running = await db.fetchrow(RUNNING + where, request, latest)
        return record_of(entries, running and counts_of(tuple(running)))

    async def close(self) -> None:
        """As the protocol says; the lock goes with the connection. May be called twice."""
        db, self._db = self._db, None
        if db is None:
            return
        try:
            with anyio.fail_after(PATIENCE_S, shield=True):
                await db.close()
        except FAILURES:
            db.terminate()

    async def _write(
        self, db: Any, opened: Sequence[Opened], counts: Sequence[Counts], closed: Sequence[Closed]
    ) -> tuple[Head, Changes]:
        """What holds once it is committed."""
        writer, key = self.anchor.writer, self.anchor.key
        pen = Pen(writer, self.epoch, key, self._head or await self._last(db))
        known = await self._known(db, keys_of(opened, closed))
        added = new_entries(pen, known, opened, closed)
        changes = changes_of(self._running, writer, [*known, *added], counts)
        for statement, rows in (
            (INSERT, [row(entry) for entry in added]),
            (RUN, [each.row(key) for each in changes.values() if each is not None]),
            (END_RUNNING, [entry.key for entry in added if entry.kind == "close"]),
        ):
            if rows:
                await db.executemany(statement, rows)
        return pen.head, changes

    async def _known(self, db: Any, keys: Sequence[Attempt]) -> list[Entry]:
        if not keys:
            return []
        requests, attempts = zip(*keys, strict=True)
        known = self._entries(await db.fetch(KNOWN, requests, attempts))
        return known + [self._running[key].opening for key in keys if key in self._running]

    async def _remember(self) -> None:
        assert self._head is not None
        await anyio.to_thread.run_sync(self.anchor.remember, self._head)

    def _entries(self, found: Iterable[Any]) -> list[Entry]:
        entries = []
        for each in found:
            try:
                entries.append(entry_of(tuple(each)))
            except ValueError as error:
                place = f"row {each[1]} of {each[0]}"
                raise LedgerError(f"{self.where}: {place} was edited: {error}") from None
        return entries

    async def _last(self, db: Any) -> Head:
        found = self._entries(await db.fetch(LAST, self.anchor.writer))
        return Head(found[0].number, found[0].mac) if found else START

    async def _check_version(self, db: Any) -> None:
        check = key_check(self.anchor.key)
        found = await db.fetchrow("SELECT version, key_check FROM ledger_version")
        if found is None:
            await db.execute("INSERT INTO ledger_version VALUES ($1, $2)", VERSION, check)
        else:
            check_version(self.where, found[0], found[1], check)

    async def _check_anchor(self, db: Any) -> None:
        try:
            anchored = await anyio.to_thread.run_sync(self.anchor.last)
        except OSError as error:
            raise LoadError(f"{error.filename}: cannot be opened: {error.strerror}") from None
        if anchored is not None:
            query = "SELECT mac FROM ledger_entries WHERE writer = $1 AND number = $2"
            there = await db.fetchval(query, self.anchor.writer, anchored.number)
            self.anchor.compare(anchored, there)

    async def _take_lock(self, db: Any) -> None:
        """A holder that has just died is given a moment: the server notices soon."""
        query = "SELECT pg_try_advisory_lock($1)"
        deadline = anyio.current_time() + PATIENCE_S
        while not await db.fetchval(query, lock_number(self.anchor.writer)):
            if anyio.current_time() > deadline:
                holder = "SELECT holder FROM ledger_writers WHERE writer = $1"
                found = await db.fetchval(holder, self.anchor.writer)
                raise LoadError(
                    f"{self.where}: another server ({found}) writes as {self.anchor.writer!r}; "
                    "stop it first, or give this one another name: writer in [ledger]"
                )
            await anyio.sleep(0.1)
        self._session = db.get_server_pid()

    async def _take_over(self, db: Any) -> None:
        writer = self.anchor.writer
        holder = f"pid {os.getpid()} on {socket.gethostname()}"
        self.epoch = await db.fetchval(TAKE_OVER, writer, holder)
        left = await db.fetch(f"{RUNNING} WHERE writer = $1", writer)
        known = await self._known(db, [(each[0], each[1]) for each in left])
        counts = [vouched(self.anchor.key, tuple(each), known) for each in left]
        closed = [abandoned(each, self.wall()) for each in counts]
        self._head, _ = await self._write(db, (), (), closed)

    async def _check_epoch(self, db: Any, query: str = EPOCH) -> None:
        """Raises `LedgerLost` once somebody else has taken over, and ever after."""
        if self._lost or await db.fetchval(query, self.anchor.writer) != self.epoch:
            self._lost = True
            raise LedgerLost(f"{self.where}: another server writes as {self.anchor.writer!r} now")

    async def _retake_lock(self, db: Any) -> None:
        """After a lost connection: another may have come since, or the old one linger on."""
        await self._check_epoch(db)
        number = lock_number(self.anchor.writer)
        if not await db.fetchval("SELECT pg_try_advisory_lock($1)", number):
            await free_ghost(db, number, self._session)
            raise LedgerError(f"{self.where}: the writer's lock is not free yet")
        await self._check_epoch(db)
        self._session = db.get_server_pid()

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Any]:
        """One caller at a time, to its end: a call that was cut off would leave half a state."""
        try:
            with anyio.fail_after(PATIENCE_S, shield=True):
                async with self._turn:
                    try:
                        yield await self._connection()
                    except BaseException as error:
                        self._head = None
                        if not isinstance(error, LedgerError | ValueError):  # not rolled back
                            self._drop()
                        raise
        except FAILURES as error:
            raise LedgerError(f"{self.where}: {_said(error)}") from None

    async def _connection(self) -> Any:
        if self._db is None or self._db.is_closed():
            db = await connect(self._dsn, self.anchor.writer)
            try:
                await self._retake_lock(db)
            except BaseException:
                db.terminate()
                raise
            self._db = db
        return self._db

    def _drop(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.terminate()


def _said(error: BaseException) -> str:
    return str(error) or "no answer in time"
