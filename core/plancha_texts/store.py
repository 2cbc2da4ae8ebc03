"""The file of texts: SQLite, shared by every gateway process, and without a trace of what is gone.

Three things together leave nothing behind. `secure_delete` overwrites what is deleted with zeros. A
checkpoint that truncates empties the write-ahead log, which holds earlier states of pages. And what
was said lies beyond `PAD` zeros of its row, so never in a page of the B-tree itself: SQLite moves
rows between those as the tree is balanced, and does not overwrite where they were (measured with
3.40.1: of 2,400 texts, half of them deleted bit by bit, up to 16 were still there in part; with the
padding none). Beyond its first page a row has pages of its own.
"""

import os
import sqlite3
import time
from pathlib import Path

import attrs
import orjson

from plancha.contracts import LoadError
from plancha_texts.hashing import check_private
from plancha_texts.retention import Policy

FORMAT = 1
"""`user_version` of the file."""

PAGE_BYTES = 4096
PAD = PAGE_BYTES
BUSY_S = 5.0
"""How long another process may hold the file."""

ROWS_AT_ONCE = 200
"""Deleted in one transaction: others wait for no longer than that takes."""

TABLE = f"""
CREATE TABLE IF NOT EXISTS texts (
    number INTEGER PRIMARY KEY,
    request TEXT NOT NULL UNIQUE,
    tenant TEXT NOT NULL,
    model TEXT NOT NULL,
    created INTEGER NOT NULL,
    hashed INTEGER NOT NULL,
    padding BLOB NOT NULL DEFAULT (zeroblob({PAD})),
    said BLOB NOT NULL
)
"""
INDEX = "CREATE INDEX IF NOT EXISTS by_age ON texts (tenant, created)"


@attrs.frozen(kw_only=True)
class Row:
    """One request's. `said` is JSON: prompts, messages and outputs, as text or as hashes."""

    request: str
    tenant: str
    model: str
    created: int  # wall clock, Unix seconds
    hashed: bool
    said: bytes = attrs.field(repr=False)


class Store:
    """For one thread at a time. Every method raises `sqlite3.Error` when the file does not work."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it. Raises `LoadError` when it is not ours alone, or no such file.

        Raises OSError when it cannot be made.
        """
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            check_private(path)
        self._file = sqlite3.connect(
            path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare(path)
        except BaseException:
            self._file.close()
            raise

    def _prepare(self, path: Path) -> None:
        self._file.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        self._write_ahead()
        for pragma in (
            "synchronous = NORMAL",
            "secure_delete = ON",
            "temp_store = MEMORY",
        ):
            self._file.execute(f"PRAGMA {pragma}")
        with self._file:  # what is found is still so when tables are made
            self._file.execute("BEGIN IMMEDIATE")
            (version,) = self._file.execute("PRAGMA user_version").fetchone()
            (tables,) = self._file.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            if version != FORMAT and (version or tables):
                raise LoadError(f"{path}: is no file of texts that this Plancha can use")
            for statement in (TABLE, INDEX, f"PRAGMA user_version = {FORMAT}"):
                self._file.execute(statement)

    def _write_ahead(self) -> None:
        """SQLite waits for nobody here, though another process may be at it too."""
        give_up_at = time.monotonic() + BUSY_S
        while True:
            try:
                self._file.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > give_up_at:
                    raise
                time.sleep(0.01)
            else:
                return

    def write(self, row: Row) -> None:
        """Keep it. What is there of the same request stays."""
        self._file.execute(
            "INSERT OR IGNORE INTO texts (request, tenant, model, created, hashed, said)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (row.request, row.tenant, row.model, row.created, row.hashed, row.said),
        )

    def find(self, request: str) -> Row | None:
        """What is kept of the request."""
        found = self._file.execute(
            "SELECT request, tenant, model, created, hashed, said FROM texts WHERE request = ?",
            (request,),
        ).fetchone()
        if found is None:
            return None
        request, tenant, model, created, hashed, said = found
        return Row(
            request=request,
            tenant=tenant,
            model=model,
            created=created,
            hashed=bool(hashed),
            said=said,
        )

    def delete(self, request: str) -> bool:
        """Whether there was something of the request. `scrub` removes the traces."""
        done = self._file.execute("DELETE FROM texts WHERE request = ?", (request,))
        return done.rowcount > 0

    def tenants(self) -> list[str]:
        """Of whom something is kept."""
        return [name for (name,) in self._file.execute("SELECT DISTINCT tenant FROM texts")]

    def delete_overdue(self, tenant: str, policy: Policy, now_s: float) -> bool:
        """Delete some of what the policy has kept no longer. Whether there may be more of it.

        `scrub` removes the traces.
        """
        if policy.of(tenant) == "hash":
            overdue, values = "NOT hashed", tuple[float, ...]()
        else:
            overdue, values = "created < ?", (policy.kept_from(tenant, now_s),)
        done = self._file.execute(
            "DELETE FROM texts WHERE number IN (SELECT number FROM texts WHERE tenant = ?"
            f" AND {overdue} LIMIT {ROWS_AT_ONCE})",
            (tenant, *values),
        )
        return done.rowcount == ROWS_AT_ONCE

    def scrub(self) -> bool:
        """Bring the write-ahead log into the file and empty it. False: others were in the way."""
        busy, _, _ = self._file.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not busy

    def close(self) -> None:
        """Give the file up."""
        self._file.close()


def said_as_bytes(prompts: object, messages: object, outputs: object) -> bytes:
    """What goes into `Row.said`."""
    return orjson.dumps({"prompts": prompts, "messages": messages, "outputs": outputs})
