"""Plugins that fail over a prompt as badly as they can: they quote it. Copied as `told_plugins`."""

import os
import signal
from collections.abc import Callable
from typing import Any

import anyio

from plancha.calls.call import Call
from plancha.contracts import Geometry
from plancha.gateway import Gateway
from plancha.plans import Plan, StepDone
from plancha.sampling import Sampling
from plancha.sequence import Sequence
from plancha.testing.executors import ScriptExecutor
from plancha_schedulers.fcfs import fcfs

GEOMETRY = Geometry(blocks=4096, context_length=2048, vocabulary=264, stop_ids=(257,))
EOS = 257

ENTRY_POINTS = """
[plancha.executors]
quoting = canary_plugins:quoting
[plancha.schedulers]
quoting = canary_plugins:quoting_scheduler
[plancha.transports]
raising = canary_plugins:raising
"""


def text_of(ids: Any) -> str:
    return bytes(id for id in ids if id < 256).decode("utf-8", "replace")


class Quoting(ScriptExecutor):
    """Says the prompt again; some words in it have the worker come to grief."""

    def step(self, plan: Plan) -> StepDone:
        for join in plan.joins:
            text = text_of(join.token_ids)
            if "STEP RAISES" in text:
                try:
                    {}[text]  # type: ignore[index]
                except KeyError as error:
                    raise ExceptionGroup(text, [RuntimeError(text, join)]) from error
            if "WORKER ABORTS" in text:
                os.abort()
            if "WORKER IS KILLED" in text:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().step(plan)


class QuotingScheduler:
    """First come, first served, or an exception."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.waiting, self.victims, self.charge = inner.waiting, inner.victims, inner.charge
        self.joined, self.remove = inner.joined, inner.remove

    def add(self, sequence: Sequence, now: float) -> None:
        text = text_of(sequence.request.prompts[0])
        if "SCHEDULER RAISES" in text:
            raise RuntimeError(text, sequence)
        self._inner.add(sequence, now)


class Raising:
    """A door whose sinks raise what they were given."""

    loopback_only = True

    def __init__(self, canary: str) -> None:
        self._canary = canary

    async def run(self, gateway: Gateway, started: Callable[[str], None]) -> None:
        started("raising")
        while gateway.state != "ready":  # noqa: ASYNC110
            await anyio.sleep(0.01)
        call = Call(model=None, prompts=(self._canary,), sampling=Sampling(), max_tokens=8)
        async with await gateway.generate(call) as generation:

            def sink() -> None:
                raise RuntimeError(f"cannot send {self._canary}", generation.take())

            generation.attach(sink)
            while not generation.ended:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        await anyio.sleep_forever()


def quoting(options: Any, site: Any) -> Quoting:
    return Quoting(lambda prompt: [*prompt[-200:], EOS], GEOMETRY)


def quoting_scheduler(options: Any, site: Any) -> QuotingScheduler:
    return QuotingScheduler(fcfs({}, site))


def raising(options: Any, site: Any) -> Raising:
    return Raising(options["says_backwards"][::-1])  # options are logged
