"""From a deployment's table to a ledger that can be written."""

from collections.abc import Iterator
from importlib.util import find_spec

from plancha.contracts import LoadError
from plancha.ledger import Ledger
from plancha_ledger.anchor import Anchor
from plancha_ledger.key import private_bytes, read_key, read_or_make_key
from plancha_ledger.sqlite_file import SqliteFile
from plancha_ledger.sqlite_ledger import SqliteLedger
from plancha_ledger.table import LedgerTable, is_dsn

NEEDS_ASYNCPG = 'store = "postgres": needs asyncpg, which `pip install plancha[postgres]` brings'


async def open_ledger(table: LedgerTable) -> Ledger:
    """The ledger of a table whose paths are right from here. Whoever opens it closes it.

    Takes the writer's lock, and closes as `failed` what the holder before has left open. Raises
    `LoadError` with what the operator can do.
    """
    anchor = Anchor(table.anchor, _key_of(table), table.writer)
    if table.store == "postgres":
        return await _open_postgres(table, anchor)
    ledger = SqliteLedger(SqliteFile(table.path, anchor))
    await ledger.open()
    return ledger


def _key_of(table: LedgerTable) -> bytes:
    """A new key is made for a new ledger only: no other fits what is signed already."""
    if not table.key_file.exists():
        for signed in (table.path, table.anchor) if table.store == "sqlite" else (table.anchor,):
            if signed.exists() and signed.stat().st_size:
                raise LoadError(
                    f"{table.key_file}: is not there, and {signed} is signed with the key that was "
                    "in it; put it back, or begin another ledger with other paths in [ledger]"
                )
    return read_or_make_key(table.key_file)


def dsn_of(table: LedgerTable) -> str:
    """Where a table's PostgreSQL is. Raises `LoadError` when its dsn_file is not as it must be."""
    if table.dsn_file is None:
        assert table.dsn is not None  # the table has checked it
        return table.dsn
    try:
        dsn = private_bytes(table.dsn_file).decode().strip()
    except UnicodeDecodeError:
        dsn = ""
    if not is_dsn(dsn):
        raise LoadError(f"{table.dsn_file}: must hold a DSN that begins with postgresql://")
    return dsn


async def _open_postgres(table: LedgerTable, anchor: Anchor) -> Ledger:
    try:
        from plancha_ledger.postgres_ledger import PostgresLedger
    except ImportError:
        raise LoadError(NEEDS_ASYNCPG) from None
    ledger = PostgresLedger(dsn_of(table), anchor)
    await ledger.open()
    return ledger


def problems_of(table: LedgerTable) -> Iterator[str]:
    """What is wrong with a table, by its key; opens and makes nothing."""
    if table.store == "postgres" and find_spec("asyncpg") is None:
        yield NEEDS_ASYNCPG
    files = {"key_file": table.key_file, "anchor": table.anchor}
    if table.store == "sqlite":
        files["path"] = table.path
    for key, path in files.items():
        if not path.parent.is_dir():
            yield f"{key}: {path.parent} is no folder; make it first"
    try:
        if table.key_file.exists():
            read_key(table.key_file)
    except LoadError as error:
        yield f"key_file: {error}"
    try:
        if table.dsn_file is not None:
            dsn_of(table)
    except LoadError as error:
        yield f"dsn_file: {error}"
