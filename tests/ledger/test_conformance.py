"""What the kernel is promised, by both stores."""

import anyio
import pytest

from ledger_places import Place, closed, counts, opened, write_requests
from plancha.contracts import LoadError
from plancha.ledger import LedgerLost
from plancha.record import Record
from plancha_ledger import postgres_ledger


def record(name: str, inputs: int, outputs: int, cached: int = 0) -> Record:
    return Record(
        id=name,
        label="mine",
        tenant="acme",
        model="m",
        created=1_800_000_000,
        input_tokens=inputs,
        cached_tokens=cached,
        output_tokens=outputs,
    )


def same(found: Record | None, expected: Record, state: str, outcome: str | None = None) -> bool:
    assert found is not None
    names = ["id", "label", "tenant", "model", "created"]
    names += ["input_tokens", "cached_tokens", "output_tokens"]
    assert [getattr(found, name) for name in names] == [getattr(expected, name) for name in names]
    return (found.state, found.outcome) == (state, outcome)


async def test_a_request_is_found_from_its_opening_on(place: Place) -> None:
    ledger = await place.open()
    assert await ledger.find("r1") is None

    await ledger.write([opened("r1")], [], [])
    assert same(await ledger.find("r1"), record("r1", 0, 0), "queued")

    await ledger.write([], [counts("r1", 33, 2, cached=16)], [])
    assert same(await ledger.find("r1"), record("r1", 33, 2, 16), "generating")

    final = counts("r1", 33, 17, cached=16)
    await ledger.write([], [], [closed(final, "cancelled")])
    assert same(await ledger.find("r1"), record("r1", 33, 17, 16), "done", "cancelled")
    await ledger.close()


async def test_what_is_written_twice_is_there_once_as_it_was_the_first_time(place: Place) -> None:
    ledger = await place.open()
    final = counts("r1", 7, 3)
    await ledger.write([opened("r1")], [final], [closed(final)])
    before = place.rows()

    await ledger.write([opened("r1")], [final], [closed(final)])
    await ledger.write([opened("r1", tenant="other")], [], [])
    await ledger.write([], [counts("r1", 9, 9)], [closed(counts("r1", 9, 9), "failed")])

    assert place.rows() == before
    assert [(row.number, row.kind) for row in before] == [(1, "open"), (2, "close")]
    assert place.verify().findings == []
    await ledger.close()


async def test_a_write_that_was_not_acknowledged_may_be_repeated_after_a_restart(
    place: Place,
) -> None:
    ledger = await place.open()
    final = counts("r1", 7, 3)
    await ledger.write([opened("r1"), opened("r2")], [], [closed(final)])
    before = place.rows()
    await ledger.close()

    ledger = await place.open()
    await ledger.write([opened("r1"), opened("r2")], [], [closed(final)])

    assert place.rows()[:3] == before
    assert [(row.request, row.outcome) for row in place.rows()[3:]] == [("r2", "failed")]
    await ledger.close()


async def test_what_was_left_open_is_closed_as_failed_at_its_last_checkpoint(place: Place) -> None:
    ledger = await place.open()
    await ledger.write([opened("counted"), opened("new"), opened("done")], [], [])
    await ledger.write([], [counts("counted", 20, 4)], [closed(counts("done", 1, 1))])
    await ledger.write([], [counts("counted", 20, 9)], [])
    await ledger.close()

    ledger = await place.open()

    assert same(await ledger.find("counted"), record("counted", 20, 9), "done", "failed")
    assert same(await ledger.find("new"), record("new", 0, 0), "done", "failed")
    assert same(await ledger.find("done"), record("done", 1, 1), "done", "completed")
    assert place.verify().findings == []
    await ledger.close()


async def test_counts_never_go_back(place: Place) -> None:
    ledger = await place.open()
    await ledger.write([opened("r1")], [counts("r1", 20, 9)], [])

    await ledger.write([], [counts("r1", 10, 4)], [])

    assert same(await ledger.find("r1"), record("r1", 20, 9), "generating")
    await ledger.close()


async def test_only_the_latest_attempt_counts(place: Place) -> None:
    ledger = await place.open()
    lost = closed(counts("r1", 30, 0), "failed", superseded=True)
    await ledger.write([opened("r1")], [], [lost])
    assert same(await ledger.find("r1"), record("r1", 0, 0), "queued")

    await ledger.write([opened("r1", attempt=1)], [counts("r1", 30, 1, attempt=1)], [])
    assert same(await ledger.find("r1"), record("r1", 30, 1), "generating")

    await ledger.write([], [], [closed(counts("r1", 30, 5, attempt=1))])
    assert same(await ledger.find("r1"), record("r1", 30, 5), "done", "completed")
    bills = [row for row in place.rows() if row.kind == "close" and not row.superseded]
    assert [(row.attempt, row.output_tokens) for row in bills] == [(1, 5)]
    await ledger.close()


async def test_the_end_of_a_request_that_nobody_opened_undoes_its_whole_write(place: Place) -> None:
    ledger = await place.open()

    with pytest.raises(ValueError, match="request r2, attempt 0: worker never opened it"):
        await ledger.write([opened("r1")], [], [closed(counts("r2", 1, 1))])

    assert await ledger.find("r1") is None
    await write_requests(ledger, "r3")
    assert [row.number for row in place.rows()] == [1, 2]
    await ledger.close()


async def test_many_may_call_at_once(place: Place) -> None:
    ledger = await place.open()

    async def one(name: str) -> None:
        await write_requests(ledger, name)
        assert same(await ledger.find(name), record(name, 7, 3, 2), "done", "completed")

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(one, f"r{number}")

    assert [row.number for row in place.rows()] == list(range(1, 41))
    assert place.verify().findings == []
    await ledger.close()


async def test_a_caller_that_is_cancelled_spoils_nothing(place: Place) -> None:
    ledger = await place.open()
    for number in range(20):
        with anyio.move_on_after(0.0005 * number):
            await write_requests(ledger, f"r{number}")

    await write_requests(ledger, *(f"r{number}" for number in range(20)))

    assert {row.request for row in place.rows()} == {f"r{number}" for number in range(20)}
    assert place.verify().findings == []
    await ledger.close()


async def test_a_second_server_is_told_who_writes(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_ledger, "PATIENCE_S", 0.3)
    ledger = await place.open()

    with pytest.raises(LoadError, match=r"another server \(pid \d+.*stop it first"):
        await place.open()

    await write_requests(ledger, "r1")
    await ledger.close()
    await (await place.open()).close()


async def test_another_key_is_refused_before_anything_is_written(place: Place) -> None:
    ledger = await place.open()
    await write_requests(ledger, "r1")
    await ledger.close()
    before = place.rows()
    (place.folder / "ledger.key").write_bytes(b"k" * 32)

    with pytest.raises(LoadError, match="was written with another key than the one in key_file"):
        await place.open()

    assert place.rows() == before


async def test_a_clock_that_is_put_back_or_forward_changes_no_order(place: Place) -> None:
    now = 1_800_000_000.0
    ledger = await place.open(wall=lambda: now)
    for number, step_s in enumerate((0, -3600, 3600, -7200)):
        now += step_s
        final = counts(f"r{number}", 5, 1)
        await ledger.write([opened(f"r{number}", at=now)], [], [closed(final, at=now - 3600)])
    await ledger.write([opened("left", at=now)], [], [])
    await ledger.close()
    now -= 3600

    ledger = await place.open(wall=lambda: now)

    rows = place.rows()
    assert [row.number for row in rows] == list(range(1, 11))
    names = [row.request for row in rows if row.kind == "close"]
    assert names == ["r0", "r1", "r2", "r3", "left"]
    assert (rows[-1].opened_us, rows[-1].closed_us) == (
        1_799_992_800_000_000,
        1_799_989_200_000_000,
    )
    assert place.verify().findings == []
    await ledger.close()


async def test_who_has_been_replaced_can_never_write_again(place: Place) -> None:
    stale = await place.open()
    await stale.write([opened("r1")], [counts("r1", 4, 2)], [])
    take_lock_away(place)
    fresh = await place.open()
    before = place.rows()

    for _ in range(2):
        with pytest.raises(LedgerLost, match="another server"):
            await stale.write([opened("r2")], [], [closed(counts("r1", 4, 4))])

    assert place.rows() == before
    assert same(await fresh.find("r1"), record("r1", 4, 2), "done", "failed")
    await write_requests(fresh, "r3")
    assert place.verify().findings == []
    await fresh.close()
    await stale.close()


async def test_an_epoch_that_was_raised_shuts_out_a_writer_that_still_has_its_lock(
    place: Place,
) -> None:
    ledger = await place.open()
    await write_requests(ledger, "r1")
    place.execute("UPDATE ledger_writers SET epoch = epoch + 1")

    with pytest.raises(LedgerLost):
        await write_requests(ledger, "r2")

    place.execute("UPDATE ledger_writers SET epoch = epoch - 1")
    with pytest.raises(LedgerLost):
        await write_requests(ledger, "r2")
    assert len(place.rows()) == 2
    await ledger.close()


def take_lock_away(place: Place) -> None:
    """What must not happen to a server that lives: somebody deletes the lock, or its connection."""
    if place.dsn is None:
        (place.folder / "ledger.sqlite.lock").unlink()
    else:
        place.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid != pg_backend_pid()"
        )


async def test_what_is_edited_while_a_request_runs_does_not_go_into_its_bill(place: Place) -> None:
    ledger = await place.open()
    await ledger.write([opened("r1")], [], [])
    place.execute("UPDATE ledger_entries SET tenant = 'nobody' WHERE number = 1")

    await ledger.write([], [], [closed(counts("r1", 7, 3))])

    assert [(row.kind, row.tenant) for row in place.rows()] == [
        ("open", "nobody"),
        ("close", "acme"),
    ]
    assert place.verify().findings == [
        "worker, row 1: was edited, or is another than was written here",
        "worker, row 2: tenant is another than at the opening, 1",
    ]
    await ledger.close()


async def test_rows_cut_off_while_it_writes_leave_a_gap(place: Place) -> None:
    ledger = await place.open()
    await write_requests(ledger, "r1", "r2")
    place.execute("DELETE FROM ledger_entries WHERE number > 2")

    await write_requests(ledger, "r3")

    assert place.verify(anchored=False).findings == ["worker: rows 3 to 4 are missing"]
    await ledger.close()
