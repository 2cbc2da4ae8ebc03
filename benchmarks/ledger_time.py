"""What the ledger costs: time per commit and rows per second, by requests in one commit.

    python benchmarks/ledger_time.py [--postgres DSN]

Each request of a group is opened and closed in the same write: two signed rows. The floor is the
same number of bytes appended to a file, with one fsync.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import anyio
import attrs
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from plancha.ledger import Closed, Counts, Ledger, Opened
from plancha_ledger.opening import open_ledger
from plancha_ledger.reading import stored_in
from plancha_ledger.table import LedgerTable
from plancha_ledger.verification import verify

GROUPS = (1, 16, 256)
COMMITS = {1: 200, 16: 100, 256: 30}
ROW_BYTES = 420  # as a line of a dump

Group = tuple[list[Opened], list[Counts], list[Closed]]


@attrs.frozen
class Measured:
    """Of one group size."""

    name: str
    group: int
    commit_s: float  # median

    @property
    def rows_per_s(self) -> float:
        return 2 * self.group / self.commit_s


def group_of(size: int, number: int) -> Group:
    """So many requests that nobody has had before."""
    names = [f"{time.time_ns():x}-{number}-{index}" for index in range(size)]
    opened = [
        Opened(request=name, label=None, tenant="acme", model="smollm2", opened_s=time.time())
        for name in names
    ]
    counts = [
        Counts(request=name, input_tokens=512, cached_tokens=128, output_tokens=200)
        for name in names
    ]
    closed = [Closed(counts=each, outcome="completed", closed_s=time.time()) for each in counts]
    return opened, counts, closed


async def ledger_time(name: str, ledger: Ledger, size: int) -> Measured:
    """The median commit of one writer that has nothing else to do."""
    took = []
    for number in range(COMMITS[size]):
        group = group_of(size, number)
        began = time.perf_counter()
        await ledger.write(*group)
        took.append(time.perf_counter() - began)
    return Measured(name, size, median(took))


def floor_time(folder: Path, size: int) -> Measured:
    """Bytes and one fsync."""
    took = []
    content = b"x" * ROW_BYTES * 2 * size
    with (folder / "floor").open("ab", buffering=0) as file:
        for _ in range(COMMITS[size]):
            began = time.perf_counter()
            file.write(content)
            os.fsync(file.fileno())
            took.append(time.perf_counter() - began)
    return Measured("a file and fsync", size, median(took))


async def measure(folder: Path, dsn: str | None, step: Callable[[], None]) -> list[Measured]:
    """Every kind at every size."""
    tables = {"SQLite": LedgerTable()}
    if dsn is not None:
        tables["PostgreSQL"] = LedgerTable(store="postgres", dsn=dsn)
    found = []
    for size in GROUPS:
        found.append(floor_time(folder, size))
        step()
    for name, table in tables.items():
        home = folder / name
        home.mkdir()
        ledger = await open_ledger(table.beside(home))
        for size in GROUPS:
            found.append(await ledger_time(name, ledger, size))
            step()
        await ledger.close()
    return found


def verify_time(folder: Path) -> tuple[int, float]:
    """Rows of the SQLite ledger, and the seconds to verify them with the anchor."""
    home = folder / "SQLite"
    began = time.perf_counter()
    report = verify(
        stored_in(str(home / "ledger.sqlite")),
        (home / "ledger.key").read_bytes(),
        home / "ledger.anchor",
    )
    assert report.findings == []
    return report.signed, time.perf_counter() - began


def shown(measured: list[Measured]) -> Table:
    table = Table(title="Two rows a request, opened and closed in one commit")
    for heading in ("", "requests", "ms per commit", "rows/s", "µs per row"):
        table.add_column(heading, justify="left" if not heading else "right")
    for each in measured:
        table.add_row(
            each.name,
            f"{each.group}",
            f"{each.commit_s * 1e3:.2f}",
            f"{each.rows_per_s:,.0f}",
            f"{1e6 / each.rows_per_s:.1f}",
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--postgres", metavar="DSN", help="an empty database to measure as well")
    parser.add_argument("--folder", type=Path, help="where the files go; this decides a lot")
    given = parser.parse_args()
    console = Console()
    kinds = 2 if given.postgres is None else 3
    with tempfile.TemporaryDirectory(dir=given.folder) as name, Progress(transient=True) as bar:
        task = bar.add_task("writing", total=kinds * len(GROUPS))
        folder = Path(name)
        measured = anyio.run(measure, folder, given.postgres, lambda: bar.advance(task))
        rows, took_s = verify_time(folder)
    console.print(shown(measured))
    console.print(f"verify: {rows:,} rows in {took_s:.2f} s, {rows / took_s:,.0f} rows/s")


if __name__ == "__main__":
    main()
