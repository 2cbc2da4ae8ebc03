import hashlib
import hmac
import json
import os
import sqlite3
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from plancha.contracts import LoadError
from plancha.failure import RequestFailed
from plancha_texts import keeper as keeper_module
from plancha_texts.keeper import at_work
from plancha_texts.retention import Policy

Keep = Callable[..., Any]
Say = Callable[..., Any]
DAY_S = 86_400
CANARY = "the quick brown canary"


async def test_texts_are_found_as_they_were_sent(keeper: Keep, said: Say) -> None:
    kept = keeper(acme=30)
    messages = ({"role": "user", "content": "Wie heißt du? 🐤"},)
    kept.keep(said("one", prompts=("a", (1, 2, 3)), outputs=("b", "", "c")))
    kept.keep(said("two", prompts=(), messages=messages))

    one, two = await kept.find("one"), await kept.find("two")

    assert (one.prompts, one.messages, one.outputs) == (("a", [1, 2, 3]), None, ("b", "", "c"))
    assert (one.tenant, one.model, one.hashed) == ("acme", "tiny", False)
    assert one.until == one.created + 30 * DAY_S
    assert two.messages == list(messages)
    assert await kept.find("three") is None
    assert await kept.find("\ud800") is None


async def test_nothing_is_nothing_not_even_a_file(keeper: Keep, said: Say, folder: Path) -> None:
    kept = keeper(acme="none")
    async with at_work(kept):
        assert not kept.keeps("acme") and not kept.keeps("unknown")
        kept.keep(said("one"))
        kept.keep(said("two", tenant="unknown"))
        assert await kept.find("one") is None
        assert not await kept.delete("one")
    assert os.listdir(folder) == []


async def test_beside_others_that_keep_theirs_nothing_is_written(
    keeper: Keep, said: Say, raw: Callable[[], bytes]
) -> None:
    kept = keeper(acme="none", other=1)
    kept.keep(said("one", prompts=(CANARY,), outputs=(CANARY,)))
    kept.keep(said("two", tenant="other", prompts=("something else",)))

    assert await kept.find("two") is not None
    assert CANARY.encode() not in raw() and b"something else" in raw()


async def test_a_hash_is_hmac_sha256_under_the_tenants_secret(
    keeper: Keep, said: Say, folder: Path, raw: Callable[[], bytes]
) -> None:
    kept = keeper(acme="hash", beta="hash")
    chat = ({"role": "user", "content": CANARY},)
    kept.keep(said("one", prompts=(CANARY, (5, 6)), outputs=(CANARY, "other")))
    kept.keep(said("two", prompts=(CANARY,), tenant="beta"))
    kept.keep(said("three", prompts=(), messages=chat))
    one, two, three = [await kept.find(name) for name in ("one", "two", "three")]

    def by_hand(tenant: str, text: str) -> str:
        secret = (folder / "secrets" / f"{tenant}.key").read_bytes()
        return "hmac-sha256:" + hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()

    assert one.hashed
    assert one.prompts == (by_hand("acme", CANARY), by_hand("acme", "[5,6]"))
    assert one.outputs == (by_hand("acme", CANARY), by_hand("acme", "other"))
    assert two.prompts == (by_hand("beta", CANARY),) != one.prompts[:1]
    as_json = json.dumps(chat, separators=(",", ":"), sort_keys=True)
    assert three.messages == by_hand("acme", as_json)
    assert CANARY.encode() not in raw()
    secrets = list((folder / "secrets").iterdir())
    assert sorted(path.name for path in secrets) == ["acme.key", "beta.key"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in secrets} == {0o600}
    assert {path.stat().st_size for path in secrets} == {32}


async def test_only_the_servers_user_can_read_the_file(
    keeper: Keep, said: Say, folder: Path
) -> None:
    before = os.umask(0)
    try:
        kept = keeper(acme=1)
        kept.keep(said("one"))
        await kept.find("one")
    finally:
        os.umask(before)

    modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in os.scandir(folder)}
    assert modes == {"texts.db": 0o600, "texts.db-wal": 0o600, "texts.db-shm": 0o600}


def test_a_file_that_others_can_read_is_refused(keeper: Keep, folder: Path) -> None:
    (folder / "texts.db").touch(0o644)

    with pytest.raises(LoadError, match=r"0644.*chmod 600"):
        keeper(acme=1).open()


def test_another_programs_file_is_refused(keeper: Keep, folder: Path) -> None:
    path = folder / "texts.db"
    path.touch(0o600)
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE other (x)")
    file.close()

    with pytest.raises(LoadError, match="no file of texts"):
        keeper(acme=1).open()
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(LoadError, match="cannot be used for texts"):
        keeper(acme=1).open()


def test_a_secret_of_the_wrong_size_or_mode_is_refused(keeper: Keep, folder: Path) -> None:
    secret = folder / "secrets" / "acme.key"
    secret.parent.mkdir()
    secret.touch(0o600)
    with pytest.raises(LoadError, match="has 0 bytes; a secret has 32"):
        keeper(acme="hash").open()
    secret.write_bytes(bytes(32))
    secret.chmod(0o640)
    with pytest.raises(LoadError, match="0640"):
        keeper(acme="hash").open()


async def test_a_deleted_text_leaves_no_trace(
    keeper: Keep, said: Say, raw: Callable[[], bytes]
) -> None:
    kept = keeper(acme=30)
    for number in range(20):
        text = f"{CANARY} {number} " + "x" * 500 * (number % 5)
        kept.keep(said(f"r{number}", prompts=(text,), outputs=(text,)))
    assert await kept.find("r19") is not None and CANARY.encode() in raw()

    for number in range(20):
        assert await kept.delete(f"r{number}")
        assert f"{CANARY} {number} ".encode() not in raw()

    assert CANARY.encode() not in raw() and b"canary" not in raw()
    assert not await kept.delete("r0")


async def test_what_is_overdue_leaves_no_trace_and_the_rest_stays(
    keeper: Keep, said: Say, raw: Callable[[], bytes], wall: Any
) -> None:
    kept = keeper(acme=7, beta=1)
    began = int(wall.now)
    for number in range(600):  # more than are deleted in one transaction
        tenant = "acme" if number % 3 else "beta"
        text = f"<{tenant} {number}>" + "x" * (37 * number % 5000)
        kept.keep(
            said(f"r{number}", tenant=tenant, created=began + number, prompts=(text,), outputs=())
        )
    assert await kept.find("r599") is not None
    assert all(f"<{'acme' if n % 3 else 'beta'} {n}>".encode() in raw() for n in (0, 1, 599))

    wall.now = began + DAY_S + 300.5
    assert await kept._sweep()
    on_disk = raw()
    for number in range(600):
        gone = number % 3 == 0 and number <= 300
        name = f"<{'acme' if number % 3 else 'beta'} {number}>".encode()
        assert (name in on_disk) != gone, number

    wall.now = began + 7 * DAY_S + 1000
    assert await kept._sweep()
    assert b"acme " not in raw() and b"beta " not in raw()


async def test_what_is_overdue_is_not_shown_before_it_is_swept(
    keeper: Keep, said: Say, wall: Any
) -> None:
    kept = keeper(acme=1)
    kept.keep(said("one"))
    wall.now += DAY_S
    assert await kept.find("one") is not None
    wall.now += 1
    assert await kept.find("one") is None


@pytest.mark.parametrize("settings", [{"acme": "none"}, {}, {"acme": "hash"}])
async def test_a_change_of_the_setting_deletes_what_is_kept_no_more(
    keeper: Keep, said: Say, raw: Callable[[], bytes], settings: Any, folder: Path
) -> None:
    kept = keeper(acme=30, beta=30)
    kept.keep(said("one", prompts=(CANARY,)))
    kept.keep(said("two", tenant="beta", prompts=("stays",)))
    assert await kept.find("one") is not None
    kept.close()

    later = keeper(beta=30, **settings)
    async with at_work(later):
        assert await later.find("one") is None
        while CANARY.encode() in raw():
            assert await later.find("two") is not None
    assert b"stays" in raw()


async def test_a_setting_that_changes_while_the_server_runs_holds_at_once(
    keeper: Keep, said: Say, raw: Callable[[], bytes]
) -> None:
    kept = keeper(acme=30)
    async with at_work(kept):
        kept.keep(said("one", prompts=(CANARY,)))
        assert await kept.find("one") is not None
        kept.retain(nothing_kept())
        kept.keep(said("two", prompts=(CANARY,)))
        assert await kept.find("one") is None and await kept.find("two") is None
        while CANARY.encode() in raw():
            await kept.find("one")


def nothing_kept() -> Any:
    return Policy({"acme": "none"})


async def test_hashes_stay_when_days_become_hashes_and_go_with_the_days_else(
    keeper: Keep, said: Say, wall: Any
) -> None:
    kept = keeper(acme="hash")
    kept.keep(said("one"))
    assert (await kept.find("one")).hashed
    wall.now += 5 * DAY_S
    assert await kept._sweep()
    assert (await kept.find("one")).hashed
    kept.retain(Policy({"acme": 3}))
    assert await kept._sweep()
    kept.retain(Policy({"acme": "hash"}))
    assert await kept.find("one") is None


async def test_two_processes_share_the_file(keeper: Keep, said: Say) -> None:
    one, other = keeper(acme=30), keeper(acme=30)
    for number in range(50):
        (one if number % 2 else other).keep(said(f"r{number}"))
    await one.find("r0")
    await other.find("r0")

    for number in range(50):
        assert (await one.find(f"r{number}")).request == f"r{number}"
    assert await other.delete("r1") and await one.find("r1") is None


async def test_who_reads_meanwhile_delays_only_the_traces_end(
    keeper: Keep, said: Say, raw: Callable[[], bytes], folder: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("plancha_texts.store.BUSY_S", 0.05)
    kept = keeper(acme=30)
    kept.keep(said("one", prompts=(CANARY,)))
    await kept.find("one")
    reader = sqlite3.connect(folder / "texts.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM texts").fetchall()
    with capture_logs() as logs:
        assert await kept.delete("one")
    assert [line["event"] for line in logs] == ["texts_traces_left"]
    reader.execute("COMMIT")
    reader.close()
    assert await kept._sweep()
    assert CANARY.encode() not in raw()


async def test_traces_that_a_reader_kept_go_soon_after_it(
    keeper: Keep, said: Say, raw: Callable[[], bytes], folder: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("plancha_texts.store.BUSY_S", 0.01)
    monkeypatch.setattr(keeper_module, "TRY_AGAIN_S", 0.01)
    kept = keeper(acme=30)
    async with at_work(kept):
        kept.keep(said("one", prompts=(CANARY,)))
        for _ in range(20):  # by then the first sweep is over
            await kept.find("one")
        reader = sqlite3.connect(folder / "texts.db", isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM texts").fetchall()
        assert await kept.delete("one")
        reader.close()
        with anyio.fail_after(30):
            while CANARY.encode() in raw():
                await kept.find("one")


async def test_what_cannot_be_written_is_counted_and_told_without_its_text(
    keeper: Keep, said: Say, folder: Path
) -> None:
    kept = keeper(acme=30)
    kept.path = folder / "no such folder" / "texts.db"
    with capture_logs() as logs:
        for number in range(5):
            kept.keep(said(f"r{number}", prompts=(CANARY,)))
        with pytest.raises(RequestFailed, match="cannot be read now"):
            kept.path = folder
            await kept.find("r0")
        kept.close()

    assert kept.losses.total == 5
    told = [line for line in logs if line["event"] == "texts_not_kept"]
    assert (told[0]["requests"], told[-1]["in_all"]) == (1, 5)
    assert sum(line["requests"] for line in told) == 5
    assert CANARY not in str(logs)


async def test_nothing_waits_for_a_slow_file(
    keeper: Keep, said: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_module, "MOST_WAITING_TOKENS", 1000)
    kept, go_on = keeper(acme=30), threading.Event()
    kept._pool.submit(go_on.wait)
    with capture_logs() as logs:
        for number in range(10):  # of 110 tokens each, nine fit
            kept.keep(said(f"r{number}"))
        go_on.set()
        found = [await kept.find(f"r{number}") for number in range(10)]

    assert [each is not None for each in found] == [True] * 9 + [False]
    assert kept.losses.total == 1
    assert logs[0]["reason"] == "the file is too slow"
    kept.keep(said("later"))
    assert await kept.find("later") is not None


async def test_the_end_of_the_server_waits_for_what_was_to_be_kept(keeper: Keep, said: Say) -> None:
    kept = keeper(acme=30)
    async with at_work(kept):
        for number in range(100):
            kept.keep(said(f"r{number}"))
    kept.keep(said("too late"))
    assert kept.losses.total == 1

    again = keeper(acme=30)
    assert all([await again.find(f"r{number}") for number in range(100)])


def test_an_exchange_does_not_show_its_text_when_it_is_printed(said: Say) -> None:
    assert CANARY not in repr(said("one", prompts=(CANARY,), outputs=(CANARY,)))
