"""`plancha bench URL`: runs a job with a progress bar and prints what came of it."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import orjson
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from plancha_app.bench.client import Outcome
from plancha_app.bench.job import Job
from plancha_app.bench.load import ServerError, drive
from plancha_app.bench.summary import row, summarise
from plancha_app.bench.workload import WorkloadError, workload


def run(url: str, job: Job) -> int:
    """Print a table and one JSON line. 0 when every request was answered to its end, else 1."""
    try:
        summary = measure(url, job)
    except (ServerError, WorkloadError) as error:
        print(f"plancha: {error}", file=sys.stderr)
        return 1
    Console().print(_table(summary))
    print(orjson.dumps(summary).decode())
    return 1 if summary["failed"] else 0


def measure(url: str, job: Job) -> dict[str, Any]:
    """Run the job and sum it up. Raises `ServerError` and `WorkloadError`."""
    asks = workload(job)
    with _progress(len(asks)) as ended:
        outcomes = anyio.run(drive, url.rstrip("/"), job, asks, ended)
    if job.out is not None:
        _write(job.out, outcomes)
    return summarise(outcomes)


def _write(path: Path, outcomes: Sequence[Outcome]) -> None:
    with path.open("wb") as file:
        for outcome in outcomes:
            file.write(orjson.dumps(row(outcome), option=orjson.OPT_APPEND_NEWLINE))


@contextmanager
def _progress(total: int) -> Iterator[Callable[[Outcome], None]]:
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[tokens]} tokens, {task.fields[failed]} failed"),
    )
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=total, tokens=0, failed=0)
        tokens = failed = 0

        def ended(outcome: Outcome) -> None:
            nonlocal tokens, failed
            tokens += outcome.output_tokens
            failed += outcome.error is not None
            bar.update(task, advance=1, tokens=tokens, failed=failed)

        yield ended


def _table(summary: dict[str, Any]) -> Table:
    table = Table(
        title=f"{summary['output_tokens_per_s']} output tokens/s, "
        f"{summary['requests'] - summary['failed']} of {summary['requests']} requests "
        f"in {summary['duration_s']:.1f} s"
    )
    table.add_column("seconds")
    for heading in ("mean", "p50", "p90", "p99"):
        table.add_column(heading, justify="right")
    for name, title in (
        ("ttft_s", "first token"),
        ("inter_token_s", "between tokens"),
        ("latency_s", "whole answer"),
    ):
        cells = ("-" if value is None else f"{value:.4f}" for value in summary[name].values())
        table.add_row(title, *cells)
    for error, count in summary["errors"].items():
        table.caption = f"{table.caption or ''} {error}: {count}".strip()
    return table
