"""`plancha ledger`, as an auditor types it."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from ledger_places import Place, write_requests
from plancha_app.cli import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def plancha(capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """`plancha ledger …` in this process: exit code, stdout, stderr."""

    def run(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(["ledger", *map(str, words)])
        out, err = capfdbinary.readouterr()
        assert left.value.code is None or isinstance(left.value.code, int)
        return left.value.code or 0, out.decode(), err.decode()

    return run


@pytest.fixture
def deployment(tmp_path: Path) -> Path:
    """A deployment's file beside a ledger of two requests."""

    async def fill() -> None:
        ledger = await Place(tmp_path).open()
        await write_requests(ledger, "r1", "r2")
        await ledger.close()

    anyio.run(fill)
    path = tmp_path / "deployment.toml"
    path.write_text("[ledger]\n")
    return path


def test_a_sound_ledger_is_verified_by_its_deployment_alone(plancha: Run, deployment: Path) -> None:
    assert plancha("verify", deployment) == (
        0,
        "writer\trows\tclosed\topen\tanchored\nworker\t4\t2\t0\tall\nnothing is wrong\n",
        "",
    )


def test_findings_leave_with_1_and_say_where(plancha: Run, deployment: Path) -> None:
    db = sqlite3.connect(deployment.parent / "ledger.sqlite")
    with db:
        db.execute("DELETE FROM ledger_entries WHERE number = 4")
    db.close()

    code, out, _ = plancha("verify", deployment)

    assert code == 1
    assert out.splitlines()[0] == (
        "worker, anchor line 2: row 4 is missing at the end; the anchor remembers row 4"
    )
    assert out.splitlines()[-1] == "1 finding"


def test_what_was_found_can_be_read_by_a_program(plancha: Run, deployment: Path) -> None:
    code, out, _ = plancha("verify", deployment, "--json")
    told = json.loads(out)
    writer = {"rows": 4, "closed": 2, "open": 0, "head": 4, "anchored": 4}
    assert (code, told) == (0, {"found": 0, "findings": [], "writers": {"worker": writer}})

    db = sqlite3.connect(deployment.parent / "ledger.sqlite")
    with db:
        db.execute("DELETE FROM ledger_entries WHERE number = 4")
    db.close()
    code, out, _ = plancha("verify", deployment, "--json")

    told = json.loads(out)
    assert (code, told["found"]) == (1, 1)
    assert "row 4 is missing" in told["findings"][0]


def test_totals_can_be_read_by_a_program(plancha: Run, deployment: Path) -> None:
    words = ("totals", deployment, "--by", "tenant", "--by", "outcome")
    headings, *rows = [line.split("\t") for line in plancha(*words)[1].splitlines()]

    code, out, _ = plancha(*words, "--json")

    assert code == 0
    assert [{name: str(value) for name, value in group.items()} for group in json.loads(out)] == [
        dict(zip(headings, row, strict=True)) for row in rows
    ]


def test_an_auditor_needs_dump_key_and_anchor_alone(
    plancha: Run, deployment: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    code, dump, _ = plancha("export", deployment, "--format", "chain")
    assert (code, len(dump.splitlines())) == (0, 4)
    desk = tmp_path_factory.mktemp("desk")
    (desk / "dump").write_text(dump)
    for name in ("ledger.key", "ledger.anchor"):
        (deployment.parent / name).rename(desk / name)
    words = ("verify", "--store", desk / "dump", "--key", desk / "ledger.key")

    code, out, _ = plancha(*words, "--anchor", desk / "ledger.anchor")
    assert (code, out.splitlines()[-1]) == (0, "nothing is wrong")

    (desk / "dump").write_text("".join(dump.splitlines(keepends=True)[:3]))
    code, out, _ = plancha(*words)
    assert (code, "rows cut off at the end would not show" in out) == (0, True)
    code, out, _ = plancha(*words, "--anchor", desk / "ledger.anchor")
    assert (code, "row 4 is missing at the end" in out) == (1, True)


def test_totals_are_lines_of_tabs_where_there_is_no_terminal(
    plancha: Run, deployment: Path
) -> None:
    code, out, _ = plancha("totals", deployment, "--by", "tenant", "--by", "month")

    headings, row = (line.split("\t") for line in out.splitlines())
    assert code == 0
    assert headings[:6] == [
        *("tenant", "month", "requests", "input_tokens", "cached_tokens", "output_tokens"),
    ]
    assert row == ["acme", "2027-01", "2", "14", "4", "6", "2", "0", "0", "0"]


def test_a_part_of_it_is_chosen_by_days(plancha: Run, deployment: Path) -> None:
    for since, until, lines in (
        ("2027-01-15", "2027-01-16", 3),
        ("2027-01-16", "2027-02-01", 1),
        ("2027-01-01", "2027-01-15", 1),
    ):
        _, out, _ = plancha("export", deployment, "--since", since, "--until", until)
        assert len(out.splitlines()) == lines


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("verify", "--store", "/no/such"), "--store needs --key"),
        (("totals", "--store", "/no/such"), "/no/such: cannot be read: No such file"),
        (("totals", "--store", __file__), "is incomplete, or no line of a ledger's dump"),
        (("verify", "/no/such.toml"), "/no/such.toml"),
    ],
)
def test_what_cannot_be_read_leaves_with_2(plancha: Run, words: tuple[str, ...], told: str) -> None:
    code, out, err = plancha(*words)

    assert (code, out) == (2, "")
    assert told in err


def test_a_deployment_without_a_ledger_is_told(plancha: Run, tmp_path: Path) -> None:
    path = tmp_path / "deployment.toml"
    path.write_text("")

    assert plancha("verify", path) == (
        2,
        "",
        f"plancha: {path}: there is no [ledger]; --store names one\n",
    )


def test_a_part_of_the_chain_is_not_exported(plancha: Run, deployment: Path) -> None:
    code, _, err = plancha("export", deployment, "--format", "chain", "--tenant", "acme")

    assert (code, "a part could not be verified" in err) == (2, True)


def test_what_an_edited_row_holds_does_nothing_to_a_terminal(
    plancha: Run, deployment: Path
) -> None:
    db = sqlite3.connect(deployment.parent / "ledger.sqlite")
    with db:
        db.execute(
            "UPDATE ledger_entries SET writer = CAST(x'1b5b324aff' AS TEXT) WHERE number = 1"
        )
    db.close()

    code, out, _ = plancha("verify", deployment)
    assert code == 1
    assert "\x1b" not in out
    assert out.startswith("\\x1b[2J\\udcff, row 1: was edited: cannot have been written")

    code, _, err = plancha("totals", deployment)
    assert (code, "\x1b" in err) == (2, False)
