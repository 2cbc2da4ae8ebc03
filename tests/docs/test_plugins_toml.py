"""`plugins.toml` shows the defaults that the code has, also where they are commented out."""

import re
import tomllib
from typing import Any

import pytest

from markdown_pages import ROOT
from plancha_app.settings.tables import Key, tables

LINE = re.compile(r"(?:# |#   )?(?:\[(?P<header>[\w.]+)\]|(?P<key>\w+) = (?P<value>\S.*))")
EXAMPLES = {"tenants.acme"}
"""Tables whose values are somebody's and no defaults."""

WHOLE = {"model", "batch", "kv", "server", "ledger", "texts", "tracing", "tenants.NAME", "tiers.N"}
"""Tables of which every key is in the file. The plugins' have more than anybody wants to read."""


def told() -> list[tuple[str, str, Any]]:
    """Table, key and value of each line that has one, whether or not it is commented out."""
    found = []
    header = ""
    for line in (ROOT / "plugins.toml").read_text().splitlines():
        match = LINE.match(line)
        if match and match["header"]:
            header = match["header"]
        elif match:
            found.append((header, *tomllib.loads(f"{match['key']} = {match['value']}").popitem()))
    return found


def kind(header: str) -> str:
    return {"tenants": "tenants.NAME", "tiers": "tiers.N"}.get(header.partition(".")[0], header)


def keys(header: str) -> dict[str, Key]:
    found = [table for table in tables() if table.header == kind(header)]
    return {key.name: key for table in found for key in table.keys}


LINES = told()


@pytest.mark.parametrize(("header", "name", "value"), LINES)
def test_a_value_is_the_default(header: str, name: str, value: Any) -> None:
    key = keys(header)[name]
    if key.default is not None and header not in EXAMPLES:
        assert tomllib.loads(f"default = {key.default}")["default"] == value


@pytest.mark.parametrize("header", sorted(WHOLE))
def test_nothing_is_left_out(header: str) -> None:
    assert {name for table, name, _ in LINES if kind(table) == header} == set(keys(header))
