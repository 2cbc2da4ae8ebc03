"""`plancha bench URL`: runs a job with a progress bar and tells what came of it."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import anyio
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from plancha_app.bench.client import Outcome
from plancha_app.bench.job import Job
from plancha_app.bench.load import drive
from plancha_app.bench.plot import check_can_draw, draw
from plancha_app.bench.result_file import write
from plancha_app.bench.summary import summarise
from plancha_app.bench.workload import workload
from plancha_app.machine_readable import show_json


def run(url: str, job: Job) -> int:
    """Print a table, or the summary as JSON. 0 when all requests were answered to the end, else 1.

    Raises `Mistake` and `ServerError`.
    """
    summary = measure(url, job)
    if job.json:
        show_json(summary)
    else:
        Console().print(_table(summary))
    return 1 if summary["failed"] else 0


def measure(url: str, job: Job) -> dict[str, Any]:
    """Run the job and sum it up. Raises `ServerError`, `Mistake`, and `OSError` for its files."""
    asks = workload(job)
    if job.plot is not None:
        check_can_draw(job.plot)
    with ExitStack() as held:
        # Opened first: a long run is not to be lost for want of a folder.
        out = None if job.out is None else held.enter_context(job.out.open("ab"))
        with _progress(len(asks)) as ended:
            outcomes = anyio.run(drive, url, job, asks, ended)
        if out is not None:
            if out.seekable():  # what was there is kept until there is something in its place
                out.truncate(0)
            write(out, outcomes)
    if job.plot is not None:
        draw({"": outcomes}, job.plot)
    return summarise(outcomes)


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
