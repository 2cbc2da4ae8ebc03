"""Whatever is done to a ledger, an auditor with the key and the anchor sees it, and where."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger_places import Place, closed, counts, opened, write_requests
from plancha.contracts import LoadError
from plancha.ledger import LedgerError
from plancha_ledger.entry import SIGNED, Entry
from plancha_ledger.export import chain_lines
from plancha_ledger.reading import Damaged, stored_in
from plancha_ledger.verification import Report, verify

EDITS = {
    "writer": ["'intruder'"],
    "number": ["number + 100", "-number"],
    "epoch": ["epoch + 1", "0"],
    "kind": ["'opem'"],
    "request": ["request || ' '", "'r9'"],
    "attempt": ["attempt + 1", "7"],
    "label": ["NULL", "'Mine'"],
    "tenant": ["'Acme'", "''"],
    "model": ["'n'", "model || model"],
    "opened_us": ["opened_us + 1", "-opened_us"],
    "input_tokens": ["NULL", "input_tokens - 1"],
    "cached_tokens": ["NULL", "cached_tokens + 1"],
    "output_tokens": ["0", "2 * output_tokens"],
    "outcome": ["'failed'", "'Completed'", "NULL"],
    "closed_us": ["NULL", "closed_us - 1"],
    "superseded": ["1", "2", "NULL"],
}


async def fill(place: Place) -> None:
    """Rows 1 to 6: three requests, opened and closed in turn."""
    ledger = await place.open()
    await write_requests(ledger, "r1", "r2", "r3")
    await ledger.close()


def test_the_table_of_edits_has_every_signed_column() -> None:
    assert tuple(EDITS) == SIGNED


async def test_an_edit_of_any_column_shows(place: Place) -> None:
    await fill(place)
    for column, edits in EDITS.items():
        for edit in edits:
            await _edited(place, 4, column, edit)
    for column in ("input_tokens", "cached_tokens", "output_tokens", "closed_us", "superseded"):
        await _edited(place, 3, column, "0")
    await _edited(place, 3, "outcome", "'failed'")
    assert place.verify().findings == []


async def _edited(place: Place, number: int, column: str, edit: str) -> None:
    """Edit one column of one row, look, and put it back as it was."""
    where = f"WHERE writer = 'worker' AND number = {number}"
    place.execute(
        f"CREATE TABLE kept AS SELECT * FROM ledger_entries {where};"
        f"UPDATE ledger_entries SET {column} = {edit} {where}"
    )
    report = place.verify(anchored=False)
    assert report.found >= 1, (column, edit)
    if column not in ("writer", "number"):
        assert any(f"worker, row {number}: " in each for each in report.findings), report.findings
    else:
        assert f"worker: row {number} is missing" in report.findings
    place.execute(
        "DELETE FROM ledger_entries WHERE mac IN (SELECT mac FROM kept);"
        "INSERT INTO ledger_entries SELECT * FROM kept;"
        "DROP TABLE kept"
    )


async def test_an_edit_of_a_signature_shows_at_its_own_row_alone(place: Place) -> None:
    await fill(place)
    flipped = "x'" if place.dsn is None else "'\\x"
    place.execute(f"UPDATE ledger_entries SET mac = {flipped}{'5a' * 32}' WHERE number = 3")

    assert place.verify().findings == [
        "worker, row 3: was edited, or is another than was written here"
    ]


async def test_a_missing_row_shows(place: Place) -> None:
    for number in range(1, 6):
        await fill(place)
        place.execute(f"DELETE FROM ledger_entries WHERE number = {number}")
        findings = place.verify(anchored=False).findings
        assert findings[0] == f"worker: row {number} is missing"
        empty(place)


def empty(place: Place) -> None:
    for table in ("entries", "running", "writers"):
        place.execute(f"DELETE FROM ledger_{table}")
    place.anchor.unlink()


async def test_a_swapped_pair_shows(place: Place) -> None:
    await fill(place)
    for one in range(1, 6):
        for other in range(one + 1, 7):
            swap(place, one, other)
            found = place.verify(anchored=False).findings
            for number in (one, other):
                what = "was edited, or is another than was written here"
                assert f"worker, row {number}: {what}" in found
            swap(place, one, other)
    assert place.verify().findings == []


def swap(place: Place, one: int, other: int) -> None:
    """Two rows change their places, signatures and all."""
    moves = ((one, 1000), (other, one), (1000, other))
    update = "UPDATE ledger_entries SET number"
    place.execute(";".join(f"{update} = {after} WHERE number = {now}" for now, after in moves))


async def test_the_anchor_shows_a_tail_that_was_cut_off(place: Place) -> None:
    await fill(place)
    for number in range(6, 0, -1):
        place.execute(f"DELETE FROM ledger_entries WHERE number = {number}")

        (finding,) = place.verify().findings
        missing = "row 6 is" if number == 6 else f"rows {number} to 6 are"
        assert f"{missing} missing at the end" in finding
        assert place.verify(anchored=False).found == 0


async def test_a_ledger_that_lost_its_tail_is_not_written_on(place: Place) -> None:
    await fill(place)
    place.execute("DELETE FROM ledger_entries WHERE number > 4")

    with pytest.raises(LoadError, match="row 6 of worker is not in the ledger: its end was cut"):
        await place.open()

    place.anchor.rename(place.folder / "moved")
    ledger = await place.open()
    await write_requests(ledger, "r4")
    await ledger.close()
    with pytest.raises(LoadError, match="row 6 of worker in the ledger is another one"):
        (place.folder / "moved").rename(place.anchor)
        await place.open()
    assert place.verify().findings == [
        "worker, row 6: is not the row that line 3 of the anchor remembers"
    ]


async def test_a_row_of_another_ledger_shows_though_it_has_the_same_key(place: Place) -> None:
    await fill(place)
    kept = place.rows()
    empty(place)
    ledger = await place.open()
    await write_requests(ledger, "x1", "x2", "x3")
    await ledger.close()

    mixed = [*kept[:4], *place.rows()[4:]]

    assert verify(mixed, place.key).findings == [
        "worker, row 5: was edited, or is another than was written here"
    ]


async def test_another_key_signs_nothing(place: Place) -> None:
    await fill(place)

    report = verify(place.rows(), b"k" * 32)

    assert report.findings == ["no row is signed with this key"]


async def test_a_request_whose_open_row_was_hidden_from_recovery_shows(place: Place) -> None:
    ledger = await place.open()
    await ledger.write([opened("r1"), opened("r2")], [], [])
    await ledger.close()
    place.execute("DELETE FROM ledger_running WHERE request = 'r1'")

    await (await place.open()).close()

    assert place.verify().findings == [
        "worker, row 1: request r1 was left open by a server that is gone, and never closed by "
        "the next"
    ]


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        ("UPDATE ledger_running SET request = 'r2'", "request r2, attempt 0: worker never opened"),
        ("UPDATE ledger_running SET attempt = 3", "request r1, attempt 3: worker never opened it"),
    ],
)
async def test_what_was_never_opened_is_not_signed_by_recovery(
    place: Place, edit: str, told: str
) -> None:
    ledger = await place.open()
    await ledger.write([opened("r1")], [], [])
    await ledger.close()
    place.execute(edit)

    with pytest.raises(LoadError, match=told):
        await place.open()


async def test_counts_that_are_no_numbers_are_not_signed_by_recovery(sqlite_place: Place) -> None:
    ledger = await sqlite_place.open()
    await ledger.write([opened("r1")], [], [])
    await ledger.close()
    sqlite_place.execute("UPDATE ledger_running SET output_tokens = 'many'")

    with pytest.raises(LoadError, match="request 'r1': its counts so far were edited"):
        await sqlite_place.open()


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE ledger_running SET output_tokens = 4000 WHERE request = 'r1'",
        "UPDATE ledger_running SET output_tokens = 0 WHERE request = 'r1'",
        "UPDATE ledger_running SET cached_tokens = 20 WHERE request = 'r1'",
        "UPDATE ledger_running SET mac = (SELECT mac FROM ledger_entries WHERE request = 'r1')"
        " WHERE request = 'r1'",
        "UPDATE ledger_running AS one SET mac = other.mac, output_tokens = other.output_tokens"
        " FROM ledger_running AS other WHERE one.request = 'r1' AND other.request = 'r2'",
        "UPDATE ledger_entries SET tenant = 'rival' WHERE request = 'r1'",
        "UPDATE ledger_entries SET label = NULL WHERE request = 'r1'",
    ],
)
async def test_what_runs_is_not_billed_otherwise_for_an_edit_and_a_crash(
    place: Place, edit: str
) -> None:
    ledger = await place.open()
    await ledger.write(
        [opened("r1"), opened("r2")], [counts("r1", 20, 9), counts("r2", 20, 99)], []
    )
    await ledger.close()  # as a crash: to the ledger it is the same
    before = len(place.rows())
    place.execute(edit)

    with pytest.raises(LoadError, match="request 'r1': its counts so far were edited"):
        await place.open()
    assert len(place.rows()) == before

    place.execute("DELETE FROM ledger_running WHERE request = 'r1'")
    await (await place.open()).close()
    assert "row 1: request r1 was left open by a server that is gone" in str(place.verify())


@pytest.mark.parametrize("edit", ["mac = 'none'", "mac = x'00'", "number = 'last'", "number = 6.5"])
async def test_a_last_row_that_cannot_be_stops_the_start_and_is_named(
    sqlite_place: Place, edit: str
) -> None:
    await fill(sqlite_place)
    sqlite_place.anchor.unlink()
    sqlite_place.execute(f"UPDATE ledger_entries SET {edit} WHERE number = 6")

    with pytest.raises(LoadError, match="of 'worker' was edited"):
        await sqlite_place.open()


async def dumped(place: Place, *names: str) -> Path:
    ledger = await place.open()
    await write_requests(ledger, *names)
    await ledger.close()
    path = place.folder / "dump"
    path.write_bytes(b"".join(chain_lines(place.rows())))
    return path


def flips(content: bytes) -> list[bytes]:
    """The same with one byte changed, each in turn, to one that text may have there."""
    other = {ord("1"): b"7", ord("\n"): b" "}
    return [
        content[:place] + other.get(byte, b"1") + content[place + 1 :]
        for place, byte in enumerate(content)
    ]


async def test_every_byte_of_a_dump_counts(sqlite_place: Place) -> None:
    path = await dumped(sqlite_place, "r1")
    key, content = sqlite_place.key, path.read_bytes()
    assert verify(stored_in(str(path)), key, sqlite_place.anchor) == sqlite_place.verify()

    for flipped in flips(content):
        path.write_bytes(flipped)
        assert verify(stored_in(str(path)), key).found, flipped


async def test_every_byte_of_an_anchor_counts(sqlite_place: Place) -> None:
    await fill(sqlite_place)
    rows = sqlite_place.rows()
    content = sqlite_place.anchor.read_bytes()
    assert verify(rows, sqlite_place.key, sqlite_place.anchor).found == 0

    for flipped in flips(content):
        sqlite_place.anchor.write_bytes(flipped)
        findings = verify(rows, sqlite_place.key, sqlite_place.anchor).findings
        assert findings and findings[0].startswith("anchor, line "), flipped


async def test_a_byte_of_the_database_file_changes_nothing_or_shows(sqlite_place: Place) -> None:
    await fill(sqlite_place)
    rows = sqlite_place.rows()
    size = os.stat(sqlite_place.store).st_size
    shown = [place for place in range(0, size, 41) if shows(sqlite_place, rows, place)]
    assert len(shown) > 30  # of the six rows' bytes every 41st, and those that lead to them


def shows(place: Place, rows: list[Entry], where: int) -> bool:
    """Whether one flipped byte of the file is found; if not, all rows must be as they were."""
    path = Path(place.store)
    content = path.read_bytes()
    path.write_bytes(content[:where] + bytes([content[where] ^ 0x21]) + content[where + 1 :])
    try:
        found = list(stored_in(str(path)))
        if verify(found, place.key).found:
            return True
        assert found == rows, where
        return False
    except LedgerError:
        return True
    finally:
        path.write_bytes(content)


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (lambda lines: lines[:2] + lines[3:], "worker: row 3 is missing"),
        (lambda lines: [*lines, lines[1]], "row 2: comes after row 6, where it does not belong"),
        (lambda lines: [lines[1], lines[0], *lines[2:]], "worker: row 1 is missing"),
        (lambda lines: [*lines, b"{}\n"], "line 7: is incomplete, or no line of a ledger's dump"),
        (lambda lines: [*lines[:5], lines[5][:-9]], "line 6: is incomplete"),
        (lambda lines: [lines[0].replace(b'"number":1', b'"number": 1'), *lines[1:]], "row 1"),
    ],
)
async def test_what_is_done_to_a_dump_shows(
    sqlite_place: Place, edit: Callable[[list[bytes]], list[bytes]], told: str
) -> None:
    path = await dumped(sqlite_place, "r1", "r2", "r3")
    path.write_bytes(b"".join(edit(path.read_bytes().splitlines(keepends=True))))

    report = verify(stored_in(str(path)), sqlite_place.key)

    assert any(told in finding for finding in report.findings), report.findings


async def test_an_anchor_of_a_writer_without_rows_shows(sqlite_place: Place) -> None:
    await fill(sqlite_place)

    report = verify([], sqlite_place.key, sqlite_place.anchor)

    (finding,) = report.findings
    assert finding.startswith("worker, anchor line 3: rows 1 to 6 are missing at the end")


async def test_an_anchor_that_is_behind_is_no_finding_and_catches_up(place: Place) -> None:
    await fill(place)
    lines = place.anchor.read_bytes().splitlines(keepends=True)
    place.anchor.write_bytes(lines[0])

    report = place.verify()
    assert (report.findings, report.writers["worker"].anchored.number) == ([], 2)

    await (await place.open()).close()
    assert place.verify().writers["worker"].anchored.number == 6


async def test_an_older_copy_that_was_in_use_shows_in_the_anchor(sqlite_place: Place) -> None:
    await fill(sqlite_place)
    lines = sqlite_place.anchor.read_bytes().splitlines(keepends=True)
    sqlite_place.anchor.write_bytes(b"".join([*lines, lines[1]]))

    report = sqlite_place.verify()

    assert report.findings == [
        "worker, anchor line 4: goes back from row 6 to row 4: there was an older copy in use"
    ]


async def test_what_no_column_can_hold_is_damage_and_no_crash(sqlite_place: Place) -> None:
    await fill(sqlite_place)
    for edit in (
        *("closed_us = 1 << 62", "opened_us = -1 << 62"),  # years that no calendar has
        *("tenant = x'ff00'", "tenant = CAST(x'ff41' AS TEXT)", "input_tokens = 'many'"),
    ):
        sqlite_place.execute(f"UPDATE ledger_entries SET {edit} WHERE number = 2")
        rows = list(stored_in(sqlite_place.store))
        assert [type(row) for row in rows] == [Entry, Damaged, *[Entry] * 4]
        assert found_at(sqlite_place.verify(anchored=False), 2)
    for edit in ("writer = x'00'", "writer = CAST(x'ff' AS TEXT)", "number = CAST(x'ff' AS TEXT)"):
        last = "WHERE request = 'r3' AND kind = 'close'"
        sqlite_place.execute(f"UPDATE ledger_entries SET {edit} {last}")
        assert len(list(stored_in(sqlite_place.store))) == 6
        assert found_at(sqlite_place.verify(anchored=False), 2)


def found_at(report: Report, number: int) -> bool:
    return any(f"worker, row {number}: was edited" in each for each in report.findings)


async def test_a_bill_says_whose_it_is_by_itself(place: Place) -> None:
    ledger = await place.open()
    await ledger.write([opened("r1")], [], [closed(counts("r1", 33, 17))])
    await ledger.close()

    _, bill = place.rows()

    assert (bill.tenant, bill.model, bill.label) == ("acme", "m", "mine")
    assert (bill.input_tokens, bill.output_tokens, bill.outcome) == (33, 17, "completed")
