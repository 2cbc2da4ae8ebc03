"""`[ledger]` in a deployment's file: checked, handed to the worker, and fixed while it runs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from plancha_app.assembly import choose, prepare
from plancha_app.deployment import DeploymentError
from plancha_app.reloading import reloaded
from plancha_app.words import read, written
from plancha_ledger.table import LedgerTable

Write = Callable[[str], Path]


def test_without_the_table_there_is_no_ledger(deployment_file: Write) -> None:
    assert choose(deployment_file(""))[1].ledger is None


def test_paths_are_those_beside_the_file(deployment_file: Write, tmp_path: Path) -> None:
    path = deployment_file("[ledger]\nanchor = '/mnt/anchor'\n")

    table = choose(path)[1].ledger

    assert table == LedgerTable(
        path=tmp_path / "ledger.sqlite",
        key_file=tmp_path / "ledger.key",
        anchor=Path("/mnt/anchor"),
    )


def test_a_worker_is_told_the_same_table(deployment_file: Write) -> None:
    dsn = "postgresql://plancha@db/usage"
    table = f"[ledger]\nstore = 'postgres'\ndsn = '{dsn}'\nwriter = 'gpu-1'\n"
    deployment = choose(deployment_file(table))[1]

    assert read(written(deployment)) == deployment


def test_check_tells_what_is_wrong_with_key_and_folders(
    deployment_file: Write, tmp_path: Path
) -> None:
    (tmp_path / "ledger.key").write_bytes(b"k" * 32)
    (tmp_path / "ledger.key").chmod(0o644)
    path = deployment_file("[ledger]\npath = 'no/ledger.sqlite'\n")

    with pytest.raises(DeploymentError) as wrong:
        prepare(path)

    assert [problem.partition(": ")[0] for problem in wrong.value.problems] == [
        "ledger.path",
        "ledger.key_file",
    ]


@pytest.mark.parametrize("key", ["path", "key_file", "anchor", "writer"])
def test_a_reload_changes_nothing_of_it(deployment_file: Write, key: str) -> None:
    _, before = choose(deployment_file("[ledger]\n"))

    with pytest.raises(DeploymentError) as refused:
        reloaded(before, deployment_file(f"[ledger]\n{key} = '/x'\n"))

    (told,) = refused.value.problems
    assert told.startswith(f"ledger.{key}: changed from ")
    assert told.endswith(' to "/x"; needs a restart')


def test_a_ledger_cannot_be_taken_away_by_a_reload(deployment_file: Write) -> None:
    _, before = choose(deployment_file("[ledger]\n"))

    with pytest.raises(DeploymentError, match=r"ledger\.path: changed from .* to nothing; needs a"):
        reloaded(before, deployment_file(""))
