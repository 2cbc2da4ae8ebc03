"""Disks that are full, databases that are gone: said clearly, and over when it is over."""

import shutil
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from ledger_places import Place, closed, counts, opened, write_requests
from plancha.contracts import LoadError
from plancha.ledger import LedgerError
from plancha_ledger import anchor as anchor_module
from plancha_ledger import sqlite_file
from plancha_ledger.anchor import Anchor
from plancha_ledger.batch import Head
from plancha_ledger.reading import stored_in
from plancha_ledger.sqlite_file import SqliteFile
from postgres_server import PostgresServer


def broken(pragma: str) -> Callable[[Path], sqlite3.Connection]:
    """As `connect`, of a disk that is in trouble."""
    connect = sqlite_file.connect

    def connect_in_trouble(path: Path) -> sqlite3.Connection:
        db = connect(path)
        db.execute(pragma)
        return db

    return connect_in_trouble


@pytest.mark.parametrize(
    ("pragma", "told"),
    [("PRAGMA max_page_count = 1", "full"), ("PRAGMA query_only = on", "readonly")],
)
def test_a_disk_in_trouble_is_told_and_forgotten_when_it_is_over(
    sqlite_place: Place, monkeypatch: pytest.MonkeyPatch, pragma: str, told: str
) -> None:
    anchor = Anchor(sqlite_place.anchor, sqlite_place.key, "worker")
    file = SqliteFile(Path(sqlite_place.store), anchor)
    file.open()
    many = [opened(f"request-{number}") for number in range(200)]
    file.write(many[:1], [], [])
    before = sqlite_place.rows()
    with monkeypatch.context() as trouble:
        trouble.setattr(sqlite_file, "connect", broken(pragma))
        file._disconnect()
        for _ in range(2):
            with pytest.raises(LedgerError, match=f"ledger.sqlite: .*{told}"):
                file.write(many, [], [])
        assert file.find("request-0") is not None
        assert sqlite_place.rows() == before
        file._disconnect()

    file.write(many, [], [])

    assert [row.number for row in sqlite_place.rows()] == list(range(1, 201))
    assert sqlite_place.verify().findings == []
    file.close()


def test_a_file_that_was_taken_away_is_not_made_anew(sqlite_place: Place) -> None:
    file = SqliteFile(
        Path(sqlite_place.store), Anchor(sqlite_place.anchor, sqlite_place.key, "worker")
    )
    file.open()
    file.write([opened("r1")], [], [])
    file._disconnect()
    Path(sqlite_place.store).rename(sqlite_place.folder / "away")

    with pytest.raises(LedgerError, match="unable to open database file"):
        file.write([opened("r2")], [], [])

    (sqlite_place.folder / "away").rename(sqlite_place.store)
    file.write([opened("r2")], [], [])
    assert [row.number for row in sqlite_place.rows()] == [1, 2]
    file.close()


async def test_what_is_no_database_stops_the_start(sqlite_place: Place) -> None:
    (sqlite_place.folder / "ledger.sqlite").write_bytes(b"not a database, " * 100)

    with pytest.raises(LoadError, match=r"ledger\.sqlite: file is not a database"):
        await sqlite_place.open()


async def test_somebody_who_holds_the_database_is_waited_for_and_then_told(
    sqlite_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "BUSY_MS", 20)
    ledger = await sqlite_place.open()
    other = sqlite3.connect(sqlite_place.store, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(LedgerError, match="database is locked"):
        await write_requests(ledger, "r1")

    other.close()
    await write_requests(ledger, "r1")
    await ledger.close()


async def test_an_anchor_that_cannot_be_written_holds_nobody_up(place: Place) -> None:
    ledger = await place.open()
    await write_requests(ledger, "r1")
    place.anchor.rename(place.folder / "kept")
    place.anchor.mkdir()

    await write_requests(ledger, "r2")

    place.anchor.rmdir()
    (place.folder / "kept").rename(place.anchor)
    await write_requests(ledger, "r3")
    assert place.verify().writers["worker"].anchored.number == 6
    assert len(place.anchor.read_bytes().splitlines()) == 2
    await ledger.close()


async def test_an_anchor_on_a_machine_that_hangs_holds_nobody_up(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await place.open()
    await write_requests(ledger, "r1")
    answers, append = threading.Event(), Anchor.append

    def append_when_it_answers(anchor: Anchor, head: Head) -> None:
        answers.wait()
        append(anchor, head)

    monkeypatch.setattr(anchor_module, "PATIENCE_S", 0.01)
    monkeypatch.setattr(Anchor, "append", append_when_it_answers)
    try:
        with anyio.fail_after(30):
            await write_requests(ledger, "r2", "r3")
        assert len(place.anchor.read_bytes().splitlines()) == 1
    finally:
        answers.set()
    monkeypatch.undo()
    for number in range(100):
        await write_requests(ledger, f"later {number}")
        if place.verify().writers["worker"].anchored.number > 6:
            break
    assert place.verify().findings == []
    await ledger.close()


async def test_a_database_server_that_crashed_is_waited_for(
    postgres: PostgresServer, postgres_place: Place
) -> None:
    ledger = await postgres_place.open()
    await ledger.write([opened("r1")], [counts("r1", 3, 1)], [])
    postgres.stop()
    try:
        for _ in range(2):
            with pytest.raises(LedgerError):
                await ledger.write([], [], [closed(counts("r1", 3, 2))])
            with pytest.raises(LedgerError):
                await ledger.find("r1")
    finally:
        postgres.start()

    await ledger.write([], [], [closed(counts("r1", 3, 2))])

    assert [(row.epoch, row.output_tokens) for row in postgres_place.rows()] == [(1, None), (1, 2)]
    assert postgres_place.verify().findings == []
    await ledger.close()


def test_a_second_server_is_told_who_writes_though_it_calls_the_file_otherwise(
    sqlite_place: Place,
) -> None:
    elsewhere = sqlite_place.folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "usage.sqlite").symlink_to(sqlite_place.store)
    names = [Path(sqlite_place.store), elsewhere / "usage.sqlite"]
    anchor = Anchor(sqlite_place.anchor, sqlite_place.key, "worker")
    for name, other in (names, names[::-1]):
        file = SqliteFile(name, anchor)
        file.open()
        with pytest.raises(LoadError, match="another server"):
            SqliteFile(other, anchor).open()
        file.close()


def test_a_copy_whose_log_cannot_be_read_is_not_taken_for_all_there_is(
    sqlite_place: Place,
) -> None:
    copy = sqlite_place.folder / "copy.sqlite"
    file = SqliteFile(
        Path(sqlite_place.store), Anchor(sqlite_place.anchor, sqlite_place.key, "worker")
    )
    file.open()
    file.write([opened("r1")], [], [])
    for end in ("", "-wal"):
        shutil.copy(f"{sqlite_place.store}{end}", f"{copy}{end}")
    file.close()
    copy.with_name("copy.sqlite-shm").symlink_to("nowhere/at-all")  # as in a read-only folder

    with pytest.raises(LedgerError, match=r"copy\.sqlite-wal.*where both can be written"):
        list(stored_in(str(copy)))
    copy.with_name("copy.sqlite-shm").unlink()
    assert list(stored_in(str(copy))) == sqlite_place.rows()


async def test_an_anchor_that_cannot_be_made_stops_the_start(place: Place) -> None:
    place.anchor.mkdir()

    with pytest.raises(LoadError, match=r"ledger\.anchor: cannot be opened: Is a directory"):
        await place.open()
