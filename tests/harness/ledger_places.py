"""Where tests keep a ledger: in a file or in a database, with a key, an anchor and a clock."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import attrs

from plancha.ledger import Closed, Counts, Ledger, Opened
from plancha.record import Outcome
from plancha_ledger.anchor import Anchor
from plancha_ledger.entry import Entry
from plancha_ledger.key import read_or_make_key
from plancha_ledger.postgres_ledger import PostgresLedger
from plancha_ledger.reading import sound, stored_in
from plancha_ledger.sqlite_file import SqliteFile
from plancha_ledger.sqlite_ledger import SqliteLedger
from plancha_ledger.verification import Report, verify
from postgres_server import execute

T = TypeVar("T")

NEVER = 1_800_000_000.0
"""Some time."""


@attrs.frozen
class Place:
    """One ledger's place. `dsn` None: an SQLite file."""

    folder: Path
    dsn: str | None = None

    @property
    def store(self) -> str:
        return self.dsn or str(self.folder / "ledger.sqlite")

    @property
    def anchor(self) -> Path:
        return self.folder / "ledger.anchor"

    @property
    def key(self) -> bytes:
        return read_or_make_key(self.folder / "ledger.key")

    async def open(
        self, writer: str = "worker", wall: Callable[[], float] = time.time
    ) -> "SqliteLedger | PostgresLedger":
        """Raises `LoadError`."""
        anchor = Anchor(self.anchor, self.key, writer, wall)
        ledger = (
            SqliteLedger(SqliteFile(Path(self.store), anchor, wall))
            if self.dsn is None
            else PostgresLedger(self.dsn, anchor, wall)
        )
        await ledger.open()
        return ledger

    def rows(self) -> list[Entry]:
        """All that is written."""
        return elsewhere(lambda: list(sound(stored_in(self.store))))

    def verify(self, *, anchored: bool = True) -> Report:
        """With the right key."""
        anchor = self.anchor if anchored else None
        return elsewhere(lambda: verify(stored_in(self.store), self.key, anchor))

    def execute(self, statements: str) -> None:
        """As somebody would who has got at the database."""
        if self.dsn is not None:
            dsn = self.dsn
            run(lambda: execute(dsn, statements))
            return
        db = sqlite3.connect(self.store, isolation_level=None)
        db.executescript(f"PRAGMA synchronous = OFF; {statements}")
        db.close()


def elsewhere(function: Callable[[], T]) -> T:
    """What it returns on a thread of its own, where no event loop runs."""
    found: list[T] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            found.append(function())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]


def run(function: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """A coroutine to its end, from wherever."""
    return elsewhere(lambda: asyncio.run(function()))


def opened(request: str, attempt: int = 0, tenant: str = "acme", at: float = NEVER) -> Opened:
    return Opened(
        request=request, attempt=attempt, label="mine", tenant=tenant, model="m", opened_s=at
    )


def counts(request: str, inputs: int, outputs: int, attempt: int = 0, cached: int = 0) -> Counts:
    return Counts(
        request=request,
        attempt=attempt,
        input_tokens=inputs,
        cached_tokens=cached,
        output_tokens=outputs,
    )


def closed(
    given: Counts,
    outcome: Outcome = "completed",
    *,
    superseded: bool = False,
    at: float = NEVER + 1,
) -> Closed:
    return Closed(counts=given, outcome=outcome, closed_s=at, superseded=superseded)


async def write_requests(ledger: Ledger, *names: str) -> None:
    """Open, count and close each: two rows a request, one write."""
    for name in names:
        final = counts(name, 7, 3, cached=2)
        await ledger.write([opened(name)], [final], [closed(final)])
