"""Several workers on one PostgreSQL, each with a chain of its own."""

from pathlib import Path

import anyio
import attrs
import pytest

from ledger_places import Place, closed, counts, opened, write_requests
from plancha.contracts import LoadError
from plancha.ledger import LedgerError
from plancha_ledger import postgres_ledger
from plancha_ledger.postgres_ledger import PostgresLedger


async def test_two_write_at_once_and_one_auditor_reads_both(postgres_place: Place) -> None:
    one = await postgres_place.open("one")
    other = await postgres_place.open("other")

    async with anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(write_requests, one, f"a{number}", f"b{number}")
            tasks.start_soon(write_requests, other, f"c{number}")

    report = postgres_place.verify()
    assert report.findings == []
    assert {name: (each.rows, each.anchored.number) for name, each in report.writers.items()} == {
        "one": (40, 40),
        "other": (20, 20),
    }
    found = await one.find("c3")  # whoever wrote it
    assert found is not None and found.outcome == "completed"
    await one.close()
    await other.close()


async def test_what_one_leaves_open_is_no_business_of_the_other(postgres_place: Place) -> None:
    one = await postgres_place.open("one")
    await one.write([opened("r1")], [], [])
    await one.close()

    other = await postgres_place.open("other")
    found = await other.find("r1")
    assert found is not None and found.outcome is None
    with pytest.raises(ValueError, match="other never opened it"):
        await other.write([], [], [closed(counts("r1", 1, 1))])
    await other.close()

    await (await postgres_place.open("one")).close()
    assert [row.writer for row in postgres_place.rows()] == ["one", "one"]


async def test_an_attempt_elsewhere_has_its_own_row(postgres_place: Place) -> None:
    one, other = await postgres_place.open("one"), await postgres_place.open("other")
    lost = closed(counts("r1", 5, 0), "failed", superseded=True)
    await one.write([opened("r1")], [], [lost])
    await other.write([opened("r1", attempt=1)], [], [closed(counts("r1", 5, 2, attempt=1))])

    found = await one.find("r1")

    assert found is not None and (found.outcome, found.output_tokens) == ("completed", 2)
    assert postgres_place.verify().findings == []
    await one.close()
    await other.close()


async def test_a_lost_connection_is_made_again(postgres_place: Place) -> None:
    ledger = await postgres_place.open()
    await ledger.write([opened("r1")], [], [])
    for name in ("r2", "r3"):
        hang_up(postgres_place)
        with pytest.raises(LedgerError):
            await write_requests(ledger, name)

        await write_requests(ledger, name)

    await ledger.write([], [], [closed(counts("r1", 1, 1))])
    assert [row.epoch for row in postgres_place.rows()] == [1] * 6
    assert postgres_place.verify().findings == []
    await ledger.close()


async def test_an_old_session_that_lingers_is_ended(postgres_place: Place) -> None:
    ledger = await postgres_place.open()
    await write_requests(ledger, "r1")
    assert isinstance(ledger, PostgresLedger)
    ghost, ledger._db = ledger._db, None

    with pytest.raises(LedgerError, match="lock is not free yet"):
        await write_requests(ledger, "r2")
    for _ in range(1000):
        if await repeated(ledger):
            break
        await anyio.sleep(0.01)

    assert ghost.is_closed()
    assert [row.number for row in postgres_place.rows()] == [1, 2, 3, 4]
    await ledger.close()


async def test_who_asks_in_vain_takes_nobodys_connection_away(
    postgres_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await postgres_place.open()
    assert isinstance(ledger, PostgresLedger)
    await write_requests(ledger, "r1")
    session = ledger._db.get_server_pid()
    writing = anyio.Event()

    async def write_slowly() -> None:
        async with ledger._turn:
            await writing.wait()

    monkeypatch.setattr(postgres_ledger, "PATIENCE_S", 0.05)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write_slowly)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(LedgerError, match="no answer in time"):
            await ledger.find("r1")
        writing.set()
    monkeypatch.undo()

    assert await ledger.find("r1") is not None
    assert ledger._db.get_server_pid() == session
    await ledger.close()


async def test_a_database_with_another_isolation_is_used_with_ours(postgres_place: Place) -> None:
    setting = "-c%20default_transaction_isolation%3Dserializable"
    place = attrs.evolve(postgres_place, dsn=f"{postgres_place.dsn}&options={setting}")

    ledger = await place.open()

    assert isinstance(ledger, PostgresLedger)
    assert await ledger._db.fetchval("SHOW transaction_isolation") == "read committed"
    await ledger.close()


async def repeated(ledger: PostgresLedger) -> bool:
    try:
        await write_requests(ledger, "r2")
    except LedgerError:
        return False
    return True


async def test_a_server_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    nowhere = Place(tmp_path, "postgresql://me:secret@localhost:1/usage")

    with pytest.raises(LoadError, match="postgresql://localhost:1/usage: ") as refused:
        await nowhere.open()

    assert "secret" not in str(refused.value)


def hang_up(place: Place) -> None:
    place.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name LIKE 'plancha %' AND pid != pg_backend_pid()"
    )
