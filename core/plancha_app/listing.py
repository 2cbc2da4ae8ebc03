"""`plancha plugins`: what is installed, and what the deployment uses of it."""

from pathlib import Path

import attrs

from plancha.plugins import GROUPS, PluginError, find, listing
from plancha_app.assembly import choose, plugin_tables
from plancha_app.machine_readable import show_json

HEADINGS = ("KIND", "NAME", "DISTRIBUTION", "VERSION", "CONTRACT", "MODULE")


def show_plugins(path: Path | None, *, as_json: bool = False) -> int:
    """Print every installed plugin, and load those named. 1 when one of these cannot be loaded.

    Raises `DeploymentError` when the deployment has mistakes of its own.
    """
    failures = [failure for failure in map(_failure, _named(path)) if failure]
    if as_json:
        show_json({"plugins": [attrs.asdict(each) for each in listing()], "failures": failures})
        return 1 if failures else 0
    rows = [HEADINGS]
    for plugin in listing():
        contract = "not loaded" if plugin.contract is None else str(plugin.contract)
        rows.append(
            (
                plugin.kind,
                plugin.name,
                plugin.distribution,
                plugin.version,
                contract,
                plugin.module,
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
    for failure in failures:
        print(failure)
    return 1 if failures else 0


def _named(path: Path | None) -> list[tuple[str, str]]:
    _, deployment = choose(path)
    return [
        (GROUPS[section.partition(".")[0]], table.plugin)
        for section, table in plugin_tables(deployment).items()
    ]


def _failure(named: tuple[str, str]) -> str | None:
    try:
        find(*named)
    except PluginError as error:
        return str(error)
    return None
