"""Plugins for a server under test; copied to where its processes look for distributions."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from plancha.contracts import Geometry, LoadError, Progress
from plancha.plans import Plan, StepDone
from plancha.sequence import Sequence
from plancha.startup import Stage
from plancha.testing.executors import ScriptExecutor
from plancha_schedulers.fcfs import fcfs

GEOMETRY = Geometry(blocks=4096, context_length=4096, vocabulary=264, stop_ids=(257,))

ENTRY_POINTS = """
[plancha.executors]
paced = told_plugins:paced
failing = told_plugins:failing
held = told_plugins:held
crashing = told_plugins:crashing
hanging = told_plugins:hanging
counting = told_plugins:counting
[plancha.schedulers]
telling = told_plugins:telling
"""


class Paced(ScriptExecutor):
    def step(self, plan: Plan) -> StepDone:
        time.sleep(0.005)
        return super().step(plan)


class Counting(Paced):
    """Notes every token that it has drawn in a file beside this one."""

    def step(self, plan: Plan) -> StepDone:
        done = super().step(plan)
        with Path(__file__).with_name("drawn").open("a") as drawn:
            drawn.write("." * done.slots.size)
        return done


class Hanging(ScriptExecutor):
    def step(self, plan: Plan) -> StepDone:
        print(json.dumps({"event": "hangs"}), file=sys.stderr, flush=True)
        while True:
            time.sleep(1)


class Held(Paced):
    """Loads, and makes steps, while no file beside this one forbids it."""

    def load(self, progress: Progress) -> Geometry:
        progress(Stage("loading weights", 40, "weights of a-secret-file.gguf"))
        wait_while("no_loading")
        return super().load(progress)

    def step(self, plan: Plan) -> StepDone:
        wait_while("no_steps")
        return super().step(plan)


class Failing(ScriptExecutor):
    def load(self, progress: Callable[[str], None]) -> Geometry:
        raise LoadError("shard 2 of 3 is missing")


class Crashing(ScriptExecutor):
    def load(self, progress: Callable[[str], None]) -> Geometry:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")


def say(event: str, sequence: Sequence) -> None:
    print(json.dumps({"event": event, "id": sequence.request.id}), file=sys.stderr, flush=True)


class Telling:
    """First come, first served; says on stderr who comes and goes."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.waiting, self.victims, self.charge = inner.waiting, inner.victims, inner.charge

    def add(self, sequence: Sequence, now: float) -> None:
        say("added", sequence)
        self.inner.add(sequence, now)

    def joined(self, sequence: Sequence, cached: int) -> None:
        say("joined", sequence)
        self.inner.joined(sequence, cached)

    def remove(self, sequence: Sequence) -> None:
        say("removed", sequence)
        self.inner.remove(sequence)


def wait_while(name: str) -> None:
    while Path(__file__).with_name(name).exists():
        time.sleep(0.01)


def paced(options: Any, site: Any) -> Paced:
    return Paced(lambda prompt: list(b"abcdefgh" * 500), GEOMETRY)


def counting(options: Any, site: Any) -> Counting:
    return Counting(lambda prompt: list(b"abcdefgh" * 500), GEOMETRY)


def hanging(options: Any, site: Any) -> Hanging:
    return Hanging(lambda prompt: [65], GEOMETRY)


def held(options: Any, site: Any) -> Held:
    return Held(lambda prompt: list(b"abcdefgh" * 500), GEOMETRY)


def failing(options: Any, site: Any) -> Failing:
    return Failing(lambda prompt: [65], GEOMETRY)


def crashing(options: Any, site: Any) -> Crashing:
    return Crashing(lambda prompt: [65], GEOMETRY)


def telling(options: Any, site: Any) -> Telling:
    return Telling(fcfs({}, site))
