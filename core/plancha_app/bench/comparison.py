"""Two results beside each other."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from plancha_app.bench.result_file import read_summary
from plancha_app.machine_readable import show_json

RATES = {"output_tokens_per_s": "output tokens/s", "requests_per_s": "requests/s"}
SPREADS = {"ttft_s": "first token", "inter_token_s": "between tokens", "latency_s": "whole answer"}
POINTS = ("mean", "p50", "p90", "p99")
NOTABLE = 0.05
"""A share of change that is told in colour."""


def show_comparison(before: Path, after: Path, *, as_json: bool) -> int:
    """Print a table with the ratio of each figure. Raises `Mistake` for what is no result."""
    first, second = read_summary(before), read_summary(after)
    if as_json:
        show_json({"before": first, "after": second, "ratios": ratios(first, second)})
    else:
        Console().print(_table(first, second, before.name, after.name))
    return 0


def ratios(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """After by before, of each figure; None where one of them is missing or nothing."""
    return {
        **{name: _ratio(before.get(name), after.get(name)) for name in RATES},
        **{
            name: {
                point: _ratio(_point(before, name, point), _point(after, name, point))
                for point in POINTS
            }
            for name in SPREADS
        },
    }


def _table(before: Mapping[str, Any], after: Mapping[str, Any], *names: str) -> Table:
    table = Table()
    for heading in ("", *names, "ratio"):
        table.add_column(heading, justify="right" if heading else "left", overflow="fold")
    for name in ("requests", "failed", "output_tokens"):
        cells = (f"{summary.get(name, 0):,}" for summary in (before, after))
        table.add_row(name.replace("_", " "), *cells, "")
    for title, first, second, more_is_better in _figures(before, after):
        ratio = _ratio(first, second)
        table.add_row(title, _cell(first), _cell(second), _told(ratio, more_is_better))
    return table


def _figures(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[tuple[str, float | None, float | None, bool]]:
    for name, title in RATES.items():
        yield title, before.get(name), after.get(name), True
    for name, title in SPREADS.items():
        for point in POINTS:
            first, second = _point(before, name, point), _point(after, name, point)
            yield f"{title}, {point} (s)", first, second, False


def _point(summary: Mapping[str, Any], name: str, point: str) -> float | None:
    found = summary.get(name)
    value = found.get(point) if isinstance(found, Mapping) else None
    return value if isinstance(value, int | float) else None


def _ratio(before: float | None, after: float | None) -> float | None:
    if not before or after is None:
        return None
    return round(after / before, 4)


def _cell(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.1f}" if value >= 100 else f"{value:.4g}"


def _told(ratio: float | None, more_is_better: bool) -> Text:
    if ratio is None:
        return Text("-")
    if abs(ratio - 1) < NOTABLE:
        return Text(f"{ratio:.2f}")
    return Text(f"{ratio:.2f}", style="green" if (ratio > 1) == more_is_better else "red")
