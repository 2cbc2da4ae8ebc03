"""A ledger in an SQLite file. Synchronous: everything here runs on one thread."""

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from plancha.contracts import LoadError
from plancha.ledger import Closed, Counts, LedgerError, LedgerLost, Opened
from plancha.record import Record
from plancha_ledger.anchor import Anchor
from plancha_ledger.batch import START, Head, Pen, keys_of, new_entries
from plancha_ledger.entry import COLUMNS, Attempt, Entry, entry_of, row
from plancha_ledger.key import key_check
from plancha_ledger.lock import WriterLock
from plancha_ledger.running import (
    Running,
    abandoned,
    apply,
    changes_of,
    counts_of,
    record_of,
    vouched,
)
from plancha_ledger.schema import ENTRY, SQLITE_TYPES, TABLES, VERSION, check_version

BUSY_MS = 2000
"""How long somebody else, such as a browser of databases, may keep us from writing."""

INSERT = f"INSERT INTO ledger_entries ({ENTRY}) VALUES ({', '.join('?' * len(COLUMNS))})"
RUN = """INSERT INTO ledger_running VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (request, attempt) DO UPDATE SET input_tokens = excluded.input_tokens,
    cached_tokens = excluded.cached_tokens, output_tokens = excluded.output_tokens,
    mac = excluded.mac"""
END_RUNNING = "DELETE FROM ledger_running WHERE request = ? AND attempt = ?"
RUNNING = """SELECT request, attempt, input_tokens, cached_tokens, output_tokens, mac
    FROM ledger_running"""


class SqliteFile:
    """One writer's ledger. Holds the file's lock from `open` until `close`.

    After an error the connection is made anew by whoever comes next: a disk that is back is noticed
    by itself. The last row and what is open are remembered here and not asked of the file again, so
    that a file edited meanwhile shows in the chain instead of going into it.
    """

    def __init__(self, path: Path, anchor: Anchor, wall: Callable[[], float] = time.time) -> None:
        self.path = path
        self.anchor = anchor
        self.wall = wall
        self.epoch = 0
        self._running: dict[Attempt, Running] = {}
        self._head: Head | None = None
        self._lost = False
        self._db: sqlite3.Connection | None = None
        self._lock: WriterLock | None = None

    def open(self) -> None:
        """Take the lock, and close what the writer before has left open. Raises `LoadError`."""
        file = self.path.resolve()  # whatever it is called here
        self._lock = WriterLock(file.with_name(f"{file.name}.lock"))
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            with self._transaction() as db:
                for table in TABLES:
                    db.execute(table.format_map(SQLITE_TYPES))
                self._check_version(db)
                self._check_anchor(db)
                self._take_over(db)
        except OSError as error:
            self.close()
            raise LoadError(f"{error.filename}: cannot be opened: {error.strerror}") from None
        except (LedgerError, ValueError) as error:  # of what was left open
            self.close()
            raise LoadError(str(error)) from None
        except LoadError:
            self.close()
            raise
        assert self._head is not None
        self.anchor.remember(self._head)

    def write(
        self, opened: Sequence[Opened], counts: Sequence[Counts], closed: Sequence[Closed]
    ) -> None:
        """As `plancha.ledger.Ledger.write`."""
        with self._transaction() as db:
            self._check_epoch(db)
            self._write(db, opened, counts, closed)
        assert self._head is not None
        self.anchor.remember(self._head)

    def find(self, request: str) -> Record | None:
        """As `plancha.ledger.Ledger.find`."""
        with self._connected() as db:
            entries = list(self._entries(db, "WHERE request = ?", (request,)))
            latest = max((entry.attempt for entry in entries), default=0)
            where = " WHERE request = ? AND attempt = ?"
            running = db.execute(RUNNING + where, (request, latest)).fetchone()
        return record_of(entries, running and counts_of(running))

    def close(self) -> None:
        """Let the lock go. May be called twice."""
        self._disconnect()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _write(
        self,
        db: sqlite3.Connection,
        opened: Sequence[Opened],
        counts: Sequence[Counts],
        closed: Sequence[Closed],
    ) -> None:
        writer, key = self.anchor.writer, self.anchor.key
        pen = Pen(writer, self.epoch, key, self._head or self._last(db))
        known = [entry for each in keys_of(opened, closed) for entry in self._known(db, each)]
        added = new_entries(pen, known, opened, closed)
        changes = changes_of(self._running, writer, [*known, *added], counts)
        db.executemany(INSERT, map(row, added))
        db.executemany(RUN, (each.row(key) for each in changes.values() if each is not None))
        db.executemany(END_RUNNING, (entry.key for entry in added if entry.kind == "close"))
        db.execute("COMMIT")
        self._head = pen.head
        apply(changes, self._running)

    def _known(self, db: sqlite3.Connection, key: Attempt) -> Iterator[Entry]:
        yield from self._entries(db, "WHERE request = ? AND attempt = ?", key)
        if key in self._running:
            yield self._running[key].opening

    def _entries(
        self, db: sqlite3.Connection, where: str, values: tuple[object, ...]
    ) -> Iterator[Entry]:
        for found in db.execute(f"SELECT {ENTRY} FROM ledger_entries {where}", values):
            try:
                yield entry_of(found)
            except ValueError as error:
                place = f"row {found[1]!a} of {found[0]!a}"
                raise LedgerError(f"{self.path}: {place} was edited: {error}") from None

    def _last(self, db: sqlite3.Connection) -> Head:
        where = "WHERE writer = ? ORDER BY number DESC LIMIT 1"
        last = next(self._entries(db, where, (self.anchor.writer,)), None)
        return START if last is None else Head(last.number, last.mac)

    def _check_version(self, db: sqlite3.Connection) -> None:
        check = key_check(self.anchor.key)
        found = db.execute("SELECT version, key_check FROM ledger_version").fetchone()
        if found is None:
            db.execute("INSERT INTO ledger_version VALUES (?, ?)", (VERSION, check))
        else:
            check_version(str(self.path), found[0], found[1], check)

    def _check_anchor(self, db: sqlite3.Connection) -> None:
        anchored = self.anchor.last()
        if anchored is not None:
            found = db.execute(
                "SELECT mac FROM ledger_entries WHERE writer = ? AND number = ?",
                (self.anchor.writer, anchored.number),
            ).fetchone()
            self.anchor.compare(anchored, found and found[0])

    def _take_over(self, db: sqlite3.Connection) -> None:
        writer = self.anchor.writer
        db.execute(
            "INSERT INTO ledger_writers VALUES (?, 1, ?)"
            " ON CONFLICT (writer) DO UPDATE SET epoch = epoch + 1, holder = excluded.holder",
            (writer, f"pid {os.getpid()}"),
        )
        found = db.execute("SELECT epoch FROM ledger_writers WHERE writer = ?", (writer,))
        (self.epoch,) = found.fetchone()
        left = db.execute(f"{RUNNING} WHERE writer = ?", (writer,)).fetchall()
        key, now = self.anchor.key, self.wall()
        counts = [vouched(key, each, self._known(db, (each[0], each[1]))) for each in left]
        self._write(db, (), (), [abandoned(each, now) for each in counts])

    def _check_epoch(self, db: sqlite3.Connection) -> None:
        """Raises `LedgerLost` once somebody else has taken over, and ever after."""
        query = "SELECT epoch FROM ledger_writers WHERE writer = ?"
        found = db.execute(query, (self.anchor.writer,)).fetchone()
        if self._lost or found != (self.epoch,):
            self._lost = True
            raise LedgerLost(f"{self.path}: another server has taken this one's place")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Whoever uses it commits; what was not committed in the end is undone."""
        with self._connected() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
            finally:
                if db.in_transaction:
                    self._head = None
                    db.execute("ROLLBACK")

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        try:
            if self._db is None:
                self._db = connect(self.path)
            yield self._db
        except sqlite3.Error as error:
            self._disconnect()
            raise LedgerError(f"{self.path}: {error}") from None

    def _disconnect(self) -> None:
        db, self._db, self._head = self._db, None, None
        if db is not None:
            db.close()


def connect(path: Path) -> sqlite3.Connection:
    """A connection to a file that exists: durable at every commit, and never waiting for long."""
    uri = f"{path.absolute().as_uri()}?mode=rw"
    db = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_MS / 1000)
    try:
        (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise sqlite3.OperationalError(f"no write-ahead log can be had here, only {mode}")
        db.execute("PRAGMA synchronous = FULL")
    except sqlite3.Error:
        db.close()
        raise
    return db
