"""`plancha bench`."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from plancha_app.bench.job import Job
from plancha_app.commands.help_page import Flag, epilogue

bench = App(
    name="bench",
    help_epilogue=epilogue(
        ("plancha bench http://127.0.0.1:8000", ""),
        ("plancha bench http://127.0.0.1:8000 --rate 4 --requests 200", ""),
        ("plancha bench http://127.0.0.1:8000 --out a.jsonl --plot a.svg", ""),
        ("plancha bench compare a.jsonl b.jsonl", "b beside a, with ratios"),
        ("plancha bench plot a.jsonl b.jsonl --to both.png", ""),
        codes="1 a request failed, or the server cannot be asked; 2 mistyped; 130 interrupted.",
    ),
)


@bench.default
def run(url: str, /, job: Annotated[Job | None, Parameter(name="*")] = None) -> int:
    """Put load on an OpenAI-compatible server and measure what comes.

    Parameters
    ----------
    url
        Where the server is, such as http://127.0.0.1:8000.
    """
    from plancha_app.bench.command import run as bench_run

    return bench_run(url, job or Job())


@bench.command
def compare(before: Path, after: Path, /, *, json: Flag = False) -> int:
    """Set two results beside each other: what `--out` wrote, or `--json` printed.

    Parameters
    ----------
    before
        What to compare with.
    after
        What is compared; ratios are of this to that.
    json
        Print an object with both and the ratios.
    """
    from plancha_app.bench.comparison import show_comparison

    return show_comparison(before, after, as_json=json)


@bench.command
def plot(*results: Path, to: Path) -> int:
    """Draw what `--out` wrote, one or several: first tokens, pace, and tokens over time.

    Needs matplotlib: pip install 'plancha[plot]'.

    Parameters
    ----------
    results
        Files that `--out` wrote.
    to
        The picture: its ending, .png or .svg, says what kind.
    """
    from plancha_app.bench.plot import draw_files

    return draw_files(results, to)
