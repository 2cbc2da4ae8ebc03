"""`kill -9` at any moment, many times over: nothing acknowledged is lost and nothing invented."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

import ledger_victim
from ledger_places import Place, elsewhere, run
from plancha_ledger.entry import Entry

KILLS = {"sqlite": 60, "postgres": 20}
HARNESS = Path(ledger_victim.__file__).parent
ROOTS = (HARNESS, HARNESS.parents[1] / "core")


@attrs.define
class Heard:
    """What the victims of all rounds have said: tokens in and out, by request."""

    computed: dict[str, list[int]] = attrs.field(factory=dict)
    closed: dict[str, list[int]] = attrs.field(factory=dict)
    checkpoints: dict[str, list[int]] = attrs.field(factory=dict)

    def line(self, line: bytes) -> str:
        """Take note of it. Its first word; a pipe takes such a line whole or not at all."""
        word, what = json.loads(line)
        if word == "computed":
            self.computed.update(what)
        elif word == "written":
            self.closed.update(what[0])
            self.checkpoints.update(what[1])
        return str(word)


@pytest.fixture
def victims(place: Place) -> Iterator[subprocess.Popen[bytes]]:
    words = [sys.executable, ledger_victim.__file__, str(place.folder)]
    process = subprocess.Popen(
        words if place.dsn is None else [*words, place.dsn],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, ROOTS))},
    )
    with process:
        yield process


def test_a_writer_may_be_killed_at_any_moment(
    place: Place, victims: subprocess.Popen[bytes]
) -> None:
    chance = random.Random(5)
    heard = Heard()
    before: list[Entry] = []
    for seed in range(KILLS["sqlite" if place.dsn is None else "postgres"]):
        kill_one(victims, seed, chance, heard)
        if seed % 2:  # else the next victim finds what this one has left
            run(lambda: recover(place))
            before = check(place, heard, before)
    assert len(heard.closed) > 20


def kill_one(
    victims: subprocess.Popen[bytes], seed: int, chance: random.Random, heard: Heard
) -> None:
    """Let it write for some lines and some moments more, or die while it opens the ledger."""
    assert victims.stdin is not None and victims.stdout is not None
    victims.stdin.write(f"{seed}\n".encode())
    victims.stdin.flush()
    _, pid = json.loads(victims.stdout.readline())
    for _ in range(chance.choice((0, 1, 2, 3, 20, 40))):
        heard.line(victims.stdout.readline())
    time.sleep(chance.random() * 0.02)
    os.kill(pid, signal.SIGKILL)
    while heard.line(victims.stdout.readline()) != "dead":
        pass


async def recover(place: Place) -> None:
    await (await place.open()).close()


def check(place: Place, heard: Heard, before: list[Entry]) -> list[Entry]:
    """What holds after every recovery. The rows, which must all be there after the next one."""
    report = place.verify()
    assert (report.findings, [each.running for each in report.writers.values()]) == ([], [0])
    rows = elsewhere(place.rows)
    assert rows[: len(before)] == before
    bills: dict[str, Any] = {row.request: row for row in rows if row.kind == "close"}
    assert len(bills) * 2 == len(rows)
    for name, final in heard.closed.items():
        assert tokens(bills[name]) == final
    for name, row in bills.items():
        computed, least = heard.computed[name], heard.checkpoints.get(name, [0, 0])
        assert all(
            low <= it <= high for low, it, high in zip(least, tokens(row), computed, strict=True)
        )
    return rows


def tokens(row: Entry) -> list[int]:
    assert row.input_tokens is not None and row.output_tokens is not None
    return [row.input_tokens, row.output_tokens]
