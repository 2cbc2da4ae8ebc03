"""Rows as an auditor gets them: from either store or from a dump, in order, damaged ones too.

Nothing is locked and nothing held: a server may go on writing to what is being read.
"""

import asyncio
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import orjson

from plancha.ledger import LedgerError
from plancha_ledger.entry import COLUMNS, MAC_BYTES, Entry, entry_of
from plancha_ledger.schema import ENTRY
from plancha_ledger.table import is_dsn

PAGE = 1000
SQLITE_MAGIC = b"SQLite format 3\0"
SMALLEST = -(2**63)


@attrs.frozen
class Damaged:
    """A row that cannot be what was written; `mac` and `number` as far as they can be read."""

    writer: str
    number: int | None
    what: str
    mac: bytes | None = None


Stored = Entry | Damaged


def stored_in(store: str) -> Iterator[Stored]:
    """All rows of a store, by writer and then by number.

    `store` is a DSN, or the path of an SQLite file or of a dump (`export.chain_lines`), which says
    itself which it is. Raises `LedgerError` when it cannot be read.
    """
    if is_dsn(store):
        return _in_postgres(store)
    path = Path(store)
    try:
        with path.open("rb") as file:
            beginning = file.read(len(SQLITE_MAGIC))
    except OSError as error:
        raise LedgerError(f"{path}: cannot be read: {error.strerror}") from None
    return _in_sqlite(path) if beginning == SQLITE_MAGIC else _in_dump(path)


def sound(rows: Iterable[Stored]) -> Iterator[Entry]:
    """The same rows. Raises `LedgerError` at the first one that is damaged."""
    for each in rows:
        if isinstance(each, Damaged):
            place = f"row {each.number} of {each.writer}"
            raise LedgerError(f"{place} was edited: {each.what}; `plancha ledger verify` tells all")
        yield each


def dump_line(entry: Entry) -> bytes:
    """A row as one line of JSON; its MAC in hexadecimal."""
    fields = {name: getattr(entry, name) for name in COLUMNS}
    return orjson.dumps({**fields, "mac": entry.mac.hex()}) + b"\n"


def _stored(values: Sequence[Any]) -> Stored:
    try:
        return entry_of(values)
    except ValueError as error:
        writer, number, mac = values[0], values[1], values[-1]
        return Damaged(
            writer if isinstance(writer, str) else ascii(writer),
            number if type(number) is int else None,
            str(error),
            mac if isinstance(mac, bytes) and len(mac) == MAC_BYTES else None,
        )


def _in_dump(path: Path) -> Iterator[Stored]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                yield _dumped(number, line)
    except OSError as error:
        raise LedgerError(f"{path}: cannot be read: {error.strerror}") from None


def _dumped(number: int, line: bytes) -> Stored:
    try:
        fields = orjson.loads(line)
        fields["mac"] = bytes.fromhex(fields["mac"])
        if fields["superseded"] is not None:
            fields["superseded"] = int(fields["superseded"])
        found = _stored([fields[name] for name in COLUMNS])
    except (ValueError, TypeError, KeyError):
        return Damaged(f"line {number}", None, "is incomplete, or no line of a ledger's dump")
    if isinstance(found, Entry) and dump_line(found) != line:
        return Damaged(found.writer, found.number, "is not written as it was", found.mac)
    return found


def _in_sqlite(path: Path) -> Iterator[Stored]:
    db: sqlite3.Connection | None = None
    try:
        db = _reader(path)
        writers = "SELECT min(writer) FROM ledger_entries"
        (writer,) = db.execute(writers).fetchone()
        while writer is not None:
            yield from _pages(db, writer)
            place, value = _bound(writer)
            (writer,) = db.execute(f"{writers} WHERE writer > {place}", (value,)).fetchone()
    except sqlite3.Error as error:
        raise LedgerError(f"{path}: {error}") from None
    finally:
        if db is not None:
            db.close()


def _reader(path: Path) -> sqlite3.Connection:
    """Read-only; where no shared memory can be made beside the file, it must be a lone copy."""
    uri = f"{path.absolute().as_uri()}?mode=ro"
    db = sqlite3.connect(uri, uri=True)
    try:
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        db.close()
        _check_lone(path)
        db = sqlite3.connect(f"{uri}&immutable=1", uri=True)
    db.text_factory = _text
    return db


def _check_lone(path: Path) -> None:
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and log.stat().st_size:
        raise LedgerError(
            f"{log}: the latest rows are in there, and SQLite cannot read them here; "
            "copy it and the ledger to where both can be written"
        )


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")  # what is not UTF-8 is found to be damaged


def _bound(value: object) -> tuple[str, object]:
    """What was read, for a query: text that is not UTF-8 cannot be bound as text."""
    if isinstance(value, str):
        return "CAST(? AS TEXT)", value.encode("utf-8", "surrogateescape")
    return "?", value


def _pages(db: sqlite3.Connection, writer: object) -> Iterator[Stored]:
    query = (
        f"SELECT {ENTRY} FROM ledger_entries WHERE writer = {{}} AND number > {{}}"
        f" ORDER BY number LIMIT {PAGE}"
    )
    number: object = SMALLEST
    while True:
        places, values = zip(_bound(writer), _bound(number), strict=True)
        page = db.execute(query.format(*places), values).fetchall()
        if not page:
            return
        yield from map(_stored, page)
        number = page[-1][1]


def _in_postgres(dsn: str) -> Iterator[Stored]:
    """With an event loop of its own: not to be used where one runs."""
    try:
        import asyncpg

        from plancha_ledger.postgres_session import connect, shown_dsn
    except ImportError:
        raise LedgerError("a DSN needs asyncpg: `pip install plancha[postgres]`") from None
    try:
        with asyncio.Runner() as runner:
            db = runner.run(connect(dsn, "auditor"))
            try:
                yield from _fetched(runner, db)
            finally:
                runner.run(db.close())
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        raise LedgerError(f"{shown_dsn(dsn)}: {error}") from None


def _fetched(runner: asyncio.Runner, db: Any) -> Iterator[Stored]:
    writers = "SELECT min(writer) FROM ledger_entries"
    query = (
        f"SELECT {ENTRY} FROM ledger_entries WHERE writer = $1 AND number > $2"
        f" ORDER BY number LIMIT {PAGE}"
    )
    writer = runner.run(db.fetchval(writers))
    while writer is not None:
        number = SMALLEST
        while page := runner.run(db.fetch(query, writer, number)):
            yield from (_stored(tuple(each)) for each in page)
            number = page[-1]["number"]
        writer = runner.run(db.fetchval(f"{writers} WHERE writer > $1", writer))
