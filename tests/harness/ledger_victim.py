"""Processes that keep a ledger until they are killed: python ledger_victim.py FOLDER [DSN].

For every seed that comes on stdin one is forked, which is quick, and says on stdout, a line of JSON
each: "pid"; "computed" before every write, the counts that each request has really come to;
"written" after it, what it has closed and counted. When it is dead, "dead" is said for it.
"""

import asyncio
import json
import os
import random
import sys
from pathlib import Path

from ledger_places import Place, closed, counts, opened
from plancha.record import Outcome

OUTCOMES: tuple[Outcome, ...] = ("completed", "cancelled", "failed", "stalled")


def say(word: str, what: object) -> None:
    sys.stdout.write(json.dumps([word, what]) + "\n")
    sys.stdout.flush()


async def live(place: Place, seed: int) -> None:
    chance = random.Random(seed)
    running: dict[str, list[int]] = {}
    ledger = await place.open()
    say("open", None)
    for number in range(1_000_000):
        new = [f"s{seed}-{number}-{index}" for index in range(chance.randrange(3))]
        running.update((name, [0, 0]) for name in new)
        for name in running:
            running[name] = [chance.randint(1, 9) + running[name][0], running[name][1] + 1]
        ended = [name for name in running if chance.random() < 0.3]
        final = {name: running.pop(name) for name in ended}
        counted = running if chance.random() < 0.5 else {}
        say("computed", {**running, **final})
        await ledger.write(
            [opened(name) for name in new],
            [counts(name, *tokens) for name, tokens in counted.items()],
            [closed(counts(name, *final[name]), chance.choice(OUTCOMES)) for name in ended],
        )
        say("written", [final, counted])


def main(folder: str, *dsn: str) -> None:
    for seed in sys.stdin:
        pid = os.fork()
        if pid == 0:
            say("pid", os.getpid())
            asyncio.run(live(Place(Path(folder), *dsn), int(seed)))
        os.waitpid(pid, 0)
        say("dead", pid)


if __name__ == "__main__":
    main(*sys.argv[1:])
