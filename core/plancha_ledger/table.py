"""`[ledger]` of a deployment's file: where usage is written down, and by whom it is signed."""

from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

import attrs

from plancha.option_values import Check
from plancha.options import OptionsError, Problem


def has_password(dsn: str) -> bool:
    """Whether a DSN gives its password away to everybody who sees it."""
    parts = urlsplit(dsn)
    named = parse_qs(parts.query, keep_blank_values=True)
    return parts.password is not None or any("password" in name.lower() for name in named)


def is_dsn(text: str) -> bool:
    """Whether it is the address of a PostgreSQL database, and no path."""
    return text.startswith(("postgres://", "postgresql://"))


def open_dsn(value: Any) -> str | None:
    """A DSN that may be shown. Raises `OptionsError`, which does not show what may not."""
    if value is None or (isinstance(value, str) and is_dsn(value) and not has_password(value)):
        return value
    right = (
        "must be text that begins with postgresql:// and holds no password; that belongs into "
        "PGPASSFILE, or all of the DSN into a dsn_file"
    )
    raise OptionsError((Problem(key="", value='"…"', right=right),))


WRITER = Check(
    "of 1 to 64 visible ASCII characters",
    lambda name: 1 <= len(name) <= 64 and name.isascii() and name.isprintable(),
)


@attrs.frozen(kw_only=True)
class LedgerTable:
    """Where usage is written down, signed, before an answer ends.

    Without this table it is remembered for as long as the process lives. Paths are relative to the
    file's folder.
    """

    store: Literal["sqlite", "postgres"] = "sqlite"
    """`postgres` is for several workers, and needs the extra `postgres`."""

    path: Path = Path("ledger.sqlite")
    """The SQLite file."""

    dsn: str | None = attrs.field(default=None, converter=open_dsn)
    """Address of the PostgreSQL database, `postgresql://…` without a password, which belongs into
    PGPASSFILE. Left out: see `dsn_file`."""

    dsn_file: Path | None = None
    """A file that nobody else may read and that holds all of the address. Left out: see `dsn`;
    `postgres` needs one of the two."""

    key_file: Path = Path("ledger.key")
    """What signs every row; made if there is none. Keep a copy elsewhere."""

    anchor: Path = Path("ledger.anchor")
    """Remembers how far the chain has come; best on another machine's disk."""

    writer: str = attrs.field(default="worker", validator=WRITER)
    """This worker's name in the ledger; each worker has its own."""

    def __attrs_post_init__(self) -> None:
        given = [name for name in ("dsn", "dsn_file") if getattr(self, name) is not None]
        if self.store == "postgres" and len(given) != 1:
            raise ValueError('store = "postgres" needs either dsn or dsn_file')
        if self.store == "sqlite" and given:
            raise ValueError(f'{" and ".join(given)} goes with store = "postgres"')

    def beside(self, folder: Path) -> "LedgerTable":
        """The same with its paths seen from `folder`."""
        dsn_file = None if self.dsn_file is None else folder / self.dsn_file
        return attrs.evolve(
            self,
            path=folder / self.path,
            dsn_file=dsn_file,
            key_file=folder / self.key_file,
            anchor=folder / self.anchor,
        )
