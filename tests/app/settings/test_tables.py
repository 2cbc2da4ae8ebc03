"""The settings as told, held against what the code does with them."""

import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import attrs
import pytest

from plancha.options import OptionsError, structure
from plancha_app.cli import main
from plancha_app.deployment import Deployment, understand
from plancha_app.reloading import LIVE_KEYS, LIVE_TABLES
from plancha_app.settings import file, page
from plancha_app.settings.tables import PLUGINS, Key, Table, tables

ROOT = Path(__file__).parents[3]
TABLES = tuple(tables())
KEYS = [(table, key) for table in TABLES for key in table.keys]


def named(pair: tuple[Table, Key]) -> str:
    table, key = pair
    return f"{table.header}.{key.name}.{table.plugin or ''}"


@pytest.mark.parametrize("pair", KEYS, ids=named)
def test_every_setting_says_what_it_is(pair: tuple[Table, Key]) -> None:
    table, key = pair
    assert table.text.endswith(".")
    assert key.text.endswith("."), f"{named(pair)} has no text below it"
    assert key.default is not None or key.required or "Left out:" in key.text, "what if left out?"


def test_every_table_and_every_built_in_plugin_is_told() -> None:
    headers = {table.header.partition(".")[0] for table in TABLES}
    assert headers == {field.name for field in attrs.fields(Deployment)}
    for kind, plugins in PLUGINS.items():
        installed = entry_points(group=f"plancha.{kind}s")
        ours = {entry.name for entry in installed if entry.dist and entry.dist.name == "plancha"}
        assert set(plugins) == ours


@pytest.mark.parametrize("kind", PLUGINS)
def test_a_plugin_takes_the_keys_that_are_told_of_it_and_no_others(kind: str) -> None:
    """By its own mouth: the entry point's, when it is given a key that it cannot know."""
    for table in TABLES:
        if table.plugin is None or table.header.partition(".")[0] != kind:
            continue
        (entry,) = entry_points(group=f"plancha.{kind}s", name=table.plugin)
        with pytest.raises(OptionsError) as caught:
            entry.load()({"zzzz": 1}, None)
        (problem,) = caught.value.problems
        assert set(problem.valid or ()) == {key.name for key in table.keys}


def test_what_is_told_of_reloading_is_what_reloading_does() -> None:
    told = {f"{table.header}.{key.name}" for table, key in KEYS if key.live}
    assert {name for name in told if name.partition(".")[0] not in LIVE_TABLES} == LIVE_KEYS


def test_a_default_is_what_a_file_without_the_key_means() -> None:
    given: dict[str, Any] = {"tenants": {"NAME": {"retention": "none"}}, "tiers": {"N": {}}}
    empty = understand({**given, "ledger": {}})[0]
    for table in TABLES:
        if table.plugin is None and "plugin" not in {key.name for key in table.keys}:
            place: Any = empty
            for part in table.header.split("."):
                place = place[part] if isinstance(place, dict) else getattr(place, part)
            written = structure(_values(table) | _required(table), type(place), "")
            assert written == place, table.header
        elif table.plugin is not None:
            cls = PLUGINS[table.header.partition(".")[0]][table.plugin]
            assert structure(_values(table), cls, "") == cls(), table.plugin


def _values(table: Table) -> dict[str, Any]:
    lines = (f"{key.name} = {key.default}" for key in table.keys if key.default is not None)
    return tomllib.loads("\n".join(lines))


def _required(table: Table) -> dict[str, Any]:
    return {"retention": "none"} if table.header == "tenants.NAME" else {}


def test_the_page_in_docs_is_what_the_settings_say() -> None:
    written = (ROOT / "docs" / "configuration.md").read_text()
    assert written == page.page(), "docs/configuration.md is stale: `make docs` writes it anew"


def test_the_file_to_begin_with_changes_nothing() -> None:
    assert understand(tomllib.loads(file.file())) == (Deployment(), ())


def test_a_table_of_that_file_can_be_had_alone() -> None:
    assert file.file("kv").startswith("[kv]\n")
    assert file.file("kv").endswith("# block_size = 16\n")
    assert file.file("tenants") == file.file("tenants.NAME") != ""
    assert [header for header in file.headers() if not file.file(header)] == []
    assert file.file("nothing") == ""


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    for words, code, out in (
        (["config"], 0, file.file()),
        (["config", "[batch]"], 0, file.file("batch")),
        (["config", "bath"], 2, ""),
    ):
        with pytest.raises(SystemExit) as left:
            main(words)
        told = capsys.readouterr()
        assert (left.value.code or 0, told.out) == (code, out)
    assert "there is no table 'bath'; there are model, batch, kv" in told.err
