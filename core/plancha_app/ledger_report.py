"""A ledger's verification and totals, on a terminal as tables and elsewhere as plain lines."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import attrs
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from plancha_app.complaints import printable
from plancha_app.machine_readable import show_json
from plancha_ledger.totals import Total
from plancha_ledger.verification import Checked, Report


def show_report(report: Report, *, anchored: bool, as_json: bool = False) -> None:
    """Every finding, then what was looked at."""
    if as_json:
        show_json(_object(report, anchored=anchored))
        return
    for finding in report.findings:
        print(printable(finding))
    if report.found > len(report.findings):
        print(f"and {report.found - len(report.findings):,} more")
    rows = [
        (writer, f"{each.rows:,}", f"{each.requests:,}", f"{each.running:,}", _anchored(each))
        for writer, each in report.writers.items()
    ]
    headings = ["writer", "rows", "closed", "open", "anchored"]
    if not anchored:
        headings.pop()
        rows = [row[:-1] for row in rows]  # type: ignore[misc]
    if rows:
        _show(headings, rows, text=1)
    plural = "" if report.found == 1 else "s"
    verdict = f"{report.found:,} finding{plural}" if report.found else "nothing is wrong"
    if not anchored and not report.found:
        verdict += "; without the anchor, rows cut off at the end would not show"
    print(verdict)


def _object(report: Report, *, anchored: bool) -> dict[str, Any]:
    """`head` and `anchored` are the numbers of rows; the latter only with an anchor."""
    writers = {}
    for name, each in report.writers.items():
        writers[name] = {
            "rows": each.rows,
            "closed": each.requests,
            "open": each.running,
            "head": each.head.number,
            "anchored": each.anchored.number if anchored else None,
        }
    return {"found": report.found, "findings": report.findings, "writers": writers}


def show_totals(
    totals: Mapping[tuple[str, ...], Total], by: Sequence[str], *, as_json: bool = False
) -> None:
    """One line a group."""
    if as_json:
        show_json(
            [
                {**dict(zip(by, group, strict=True)), **attrs.asdict(total)}
                for group, total in totals.items()
            ]
        )
        return
    names = [field.name for field in attrs.fields(Total)]
    rows = [
        (*group, *(str(getattr(total, name)) for name in names)) for group, total in totals.items()
    ]
    _show([*by, *names], rows, text=len(by))


def _anchored(checked: Checked) -> str:
    behind = checked.head.number - checked.anchored.number
    return "all" if behind == 0 else f"all but the last {behind:,}"


def _show(headings: Sequence[str], rows: Sequence[Sequence[str]], *, text: int) -> None:
    """The first `text` columns are words, the others numbers. Plain: separated by tabs."""
    cells = [[printable(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for row in (headings, *cells):
            print("\t".join(row))
        return
    table = Table()
    for index, heading in enumerate(headings):
        justify: Literal["left", "right"] = "left" if index < text else "right"
        table.add_column(heading.replace("_", " "), justify=justify, overflow="fold")
    for row in cells:
        table.add_row(*map(escape, row))
    Console().print(table)
