"""Tables, the same in SQLite and in PostgreSQL but for the names of types.

`ledger_entries` only ever grows. `ledger_running` holds what is open, with its counts so far,
signed one by one; `ledger_writers` who may write.
"""

from plancha.contracts import LoadError
from plancha_ledger.entry import COLUMNS

VERSION = 1
COUNTS = ("input_tokens", "cached_tokens", "output_tokens")

TABLES = (
    """CREATE TABLE IF NOT EXISTS ledger_version (
    version BIGINT NOT NULL,
    key_check {bytes} NOT NULL
)""",
    """CREATE TABLE IF NOT EXISTS ledger_writers (
    writer {text} NOT NULL PRIMARY KEY,
    epoch BIGINT NOT NULL,
    holder {text} NOT NULL
)""",
    """CREATE TABLE IF NOT EXISTS ledger_entries (
    writer {text} NOT NULL,
    number BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
    kind {text} NOT NULL,
    request {text} NOT NULL,
    attempt BIGINT NOT NULL,
    label {text},
    tenant {text} NOT NULL,
    model {text} NOT NULL,
    opened_us BIGINT NOT NULL,
    input_tokens BIGINT,
    cached_tokens BIGINT,
    output_tokens BIGINT,
    outcome {text},
    closed_us BIGINT,
    superseded BIGINT,
    mac {bytes} NOT NULL,
    PRIMARY KEY (writer, number)
){options}""",
    """CREATE UNIQUE INDEX IF NOT EXISTS ledger_entries_once
    ON ledger_entries (request, attempt, kind)""",
    """CREATE TABLE IF NOT EXISTS ledger_running (
    request {text} NOT NULL,
    attempt BIGINT NOT NULL,
    writer {text} NOT NULL,
    input_tokens BIGINT NOT NULL,
    cached_tokens BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    mac {bytes} NOT NULL,
    PRIMARY KEY (request, attempt)
)""",
    """CREATE INDEX IF NOT EXISTS ledger_running_writer ON ledger_running (writer)""",
)

ENTRY = ", ".join(COLUMNS)
"""The columns of an entry, for a SELECT."""

SQLITE_TYPES = {"text": "TEXT", "bytes": "BLOB", "options": " WITHOUT ROWID"}
POSTGRES_TYPES = {"text": 'TEXT COLLATE "C"', "bytes": "BYTEA", "options": ""}


def check_version(where: str, version: object, written_with: object, check: bytes) -> None:
    """Raises `LoadError` when a ledger is of another version, or was begun with another key."""
    if version != VERSION:
        raise LoadError(f"{where}: a ledger of version {version}; this Plancha knows {VERSION}")
    if written_with != check:
        raise LoadError(
            f"{where}: this ledger was written with another key than the one in key_file"
        )
