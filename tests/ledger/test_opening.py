"""From a deployment's table to its ledger."""

import stat
from pathlib import Path
from typing import Any

import pytest

from ledger_places import Place, write_requests
from plancha.contracts import LoadError
from plancha.options import OptionsError, structure
from plancha_ledger.opening import dsn_of, open_ledger, problems_of
from plancha_ledger.table import LedgerTable


def told(table: dict[str, Any]) -> str:
    with pytest.raises(OptionsError) as wrong:
        structure(table, LedgerTable, "ledger")
    return str(wrong.value)


async def test_an_empty_table_is_a_ledger_beside_the_deployments_file(tmp_path: Path) -> None:
    table = structure({}, LedgerTable, "ledger").beside(tmp_path)
    assert list(problems_of(table)) == []

    ledger = await open_ledger(table)
    await write_requests(ledger, "r1")
    await ledger.close()

    names = ("ledger.sqlite", "ledger.sqlite.lock", "ledger.key", "ledger.anchor")
    assert modes(tmp_path) == dict.fromkeys(names, 0o600)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


async def test_no_new_key_is_made_for_a_ledger_that_there_is(tmp_path: Path) -> None:
    table = structure({}, LedgerTable, "ledger").beside(tmp_path)
    await (await open_ledger(table)).close()
    key = table.key_file.read_bytes()
    table.key_file.unlink()

    with pytest.raises(LoadError, match="put it back"):
        await open_ledger(table)

    assert not table.key_file.exists()
    table.key_file.touch(0o600)
    table.key_file.write_bytes(key)
    await (await open_ledger(table)).close()


def test_other_paths_stay_where_they_are() -> None:
    table = LedgerTable(anchor=Path("/mnt/anchor"), path=Path("usage/it.sqlite"))

    moved = table.beside(Path("/etc/plancha"))

    assert (moved.anchor, moved.path) == (Path("/mnt/anchor"), Path("/etc/plancha/usage/it.sqlite"))
    assert moved.beside(Path("/etc/plancha")) == moved


async def test_a_ledger_in_postgresql_has_its_dsn_from_a_file(
    tmp_path: Path, postgres_place: Place
) -> None:
    secret = tmp_path / "dsn"
    secret.touch(0o600)
    secret.write_text(f"{postgres_place.dsn}\n")
    table = structure({"store": "postgres", "dsn_file": "dsn"}, LedgerTable, "").beside(tmp_path)
    assert list(problems_of(table)) == []

    ledger = await open_ledger(table)
    await write_requests(ledger, "r1")
    await ledger.close()

    secret.chmod(0o644)
    with pytest.raises(LoadError, match="others can read it"):
        dsn_of(table)


def test_a_dsn_with_a_password_is_refused_and_not_shown() -> None:
    for dsn in (
        "postgresql://me:secret@db/usage",
        "postgresql://db/usage?password=secret",
        "postgresql://db/usage?sslkey=client.key&sslpassword=secret",
    ):
        text = told({"store": "postgres", "dsn": dsn})
        assert "secret" not in text
        assert 'ledger.dsn = "…": must be text that begins with postgresql:// and holds no' in text


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"store": "postgres"}, 'store = "postgres" needs either dsn or dsn_file'),
        ({"dsn": "postgresql://db/usage"}, 'dsn goes with store = "postgres"'),
        ({"store": "mysql"}, 'ledger.store = "mysql": must be "sqlite" or "postgres"'),
        ({"writer": ""}, 'ledger.writer = "": must be text of 1 to 64 visible ASCII characters'),
        ({"ancor": "x"}, 'ledger.ancor = "x": no such key; did you mean "anchor"?'),
    ],
)
def test_mistakes_in_a_table_are_told(table: dict[str, Any], text: str) -> None:
    assert text in told(table)


def test_what_can_be_seen_without_opening_it_is_told(tmp_path: Path) -> None:
    (tmp_path / "ledger.key").write_bytes(b"k" * 32)
    (tmp_path / "ledger.key").chmod(0o644)
    table = LedgerTable(path=Path("nowhere/ledger.sqlite")).beside(tmp_path)

    found = list(problems_of(table))

    assert found == [
        f"path: {tmp_path / 'nowhere'} is no folder; make it first",
        f"key_file: {tmp_path / 'ledger.key'}: others can read it (mode 0644); "
        f"`chmod 600 {tmp_path / 'ledger.key'}`",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.key"]
