"""`plancha ledger`: what an auditor does."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, ParamSpec

from cyclopts import App, Parameter

from plancha_app.commands.help_page import Flag, epilogue

if TYPE_CHECKING:  # each command imports what it needs
    from plancha_ledger.entry import Entry
    from plancha_ledger.table import LedgerTable
    from plancha_ledger.totals import Selection

ledger = App(
    name="ledger",
    help="Verify the usage ledger, and read what it says.",
    help_epilogue=epilogue(
        ("plancha ledger verify my.toml", "has anybody changed it?"),
        ("plancha ledger totals my.toml --by tenant --by month", ""),
        ("plancha ledger totals my.toml --since 2026-11-01 --json", ""),
        ("plancha ledger export my.toml --format csv > november.csv", ""),
        codes="1 findings; 2 it cannot be read, or mistyped; 130 interrupted.",
    ),
)

FINDINGS = 1
UNREADABLE = 2

P = ParamSpec("P")
Group = Literal["tenant", "model", "outcome", "day", "month"]
Store = Annotated[str | None, Parameter(help="An SQLite file, a dump, or a postgresql:// address.")]


def told(command: Callable[P, int]) -> Callable[P, int]:
    """Says what cannot be read, instead of a traceback."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> int:
        from plancha.contracts import LoadError
        from plancha.ledger import LedgerError
        from plancha_app.complaints import printable
        from plancha_app.deployment import DeploymentError

        try:
            return command(*args, **kwargs)
        except (LedgerError, LoadError, DeploymentError) as error:
            reasons = map(printable, str(error).splitlines())
            print("plancha", *reasons, sep=": ", file=sys.stderr)
            return UNREADABLE

    return run


@ledger.command
@told
def verify(
    file: Path | None = None,
    /,
    *,
    store: Store = None,
    key: Path | None = None,
    anchor: Path | None = None,
    json: Flag = False,
) -> int:
    """Check that nobody has edited, moved, added or removed a row. A server may go on meanwhile.

    Parameters
    ----------
    file
        The deployment whose [ledger] is meant; without one, plugins.toml in this folder.
    key
        The file with the key, if not the deployment's.
    anchor
        The anchor, if not the deployment's. With --store alone none is looked at.
    json
        Print an object with the findings, and what was looked at by writer.
    """
    from plancha.ledger import LedgerError
    from plancha_app.ledger_report import show_report
    from plancha_ledger.key import read_key
    from plancha_ledger.reading import stored_in
    from plancha_ledger.verification import verify as check

    if store is None:
        table, store = _deployed(file)
        key = key or table.key_file
        anchor = anchor or table.anchor
    if key is None:
        raise LedgerError("--store needs --key, the file with the key that signed it")
    report = check(stored_in(store), read_key(key), anchor)
    show_report(report, anchored=anchor is not None, as_json=json)
    return FINDINGS if report.found else 0


@ledger.command(name="totals")
@told
def show(
    file: Path | None = None,
    /,
    *,
    store: Store = None,
    by: Sequence[Group] = ("tenant",),
    tenant: str | None = None,
    since: date | None = None,
    until: date | None = None,
    json: Flag = False,
) -> int:
    """Requests and tokens to be billed, by the time at which they ended. Verify first.

    Parameters
    ----------
    file
        The deployment whose [ledger] is meant; without one, plugins.toml in this folder.
    by
        What to add up by, such as --by tenant --by month.
    tenant
        This one alone.
    since
        The first day (UTC).
    until
        The day after the last.
    json
        Print a list with an object for each group.
    """
    from plancha_app.ledger_report import show_totals
    from plancha_ledger.totals import billed, totals

    entries = _entries(file, store)
    selection = _selection(tenant, since, until)
    show_totals(totals(billed(entries, selection), by), by, as_json=json)
    return 0


@ledger.command
@told
def export(
    file: Path | None = None,
    /,
    *,
    store: Store = None,
    form: Annotated[Literal["csv", "json", "chain"], Parameter(name="--format")] = "csv",
    tenant: str | None = None,
    since: date | None = None,
    until: date | None = None,
) -> int:
    """Write what is to be billed to stdout, a line each; or every row as it is signed.

    Parameters
    ----------
    file
        The deployment whose [ledger] is meant; without one, plugins.toml in this folder.
    form
        csv, json (a line each), or chain: what `verify --store` reads.
    tenant
        This one alone; not for the chain, which can only be verified whole.
    since
        The first day (UTC); not for the chain.
    until
        The day after the last; not for the chain.
    """
    from plancha.ledger import LedgerError
    from plancha_ledger.export import chain_lines, csv_lines, json_lines
    from plancha_ledger.totals import billed

    entries = _entries(file, store)
    if form == "chain":
        if (tenant, since, until) != (None, None, None):
            raise LedgerError("--format chain is all of it: a part could not be verified")
        return _write(chain_lines(entries))
    bills = billed(entries, _selection(tenant, since, until))
    return _write(csv_lines(bills) if form == "csv" else json_lines(bills))


def _write(lines: Iterable[bytes]) -> int:
    for line in lines:
        sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
    return 0


def _deployed(file: Path | None) -> "tuple[LedgerTable, str]":
    """A deployment's table, and its store."""
    from plancha_app.assembly import choose
    from plancha_app.deployment import DeploymentError
    from plancha_ledger.opening import dsn_of

    source, deployment = choose(file)
    table = deployment.ledger
    if table is None:
        raise DeploymentError(source, ("there is no [ledger]; --store names one",))
    return table, dsn_of(table) if table.store == "postgres" else str(table.path)


def _entries(file: Path | None, store: str | None) -> "Iterator[Entry]":
    from plancha_ledger.reading import sound, stored_in

    return sound(stored_in(_deployed(file)[1] if store is None else store))


def _selection(tenant: str | None, since: date | None, until: date | None) -> "Selection":
    from plancha_ledger.totals import Selection

    return Selection(tenant=tenant, since_us=_midnight_us(since), until_us=_midnight_us(until))


def _midnight_us(day: date | None) -> int | None:
    if day is None:
        return None
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1_000_000
