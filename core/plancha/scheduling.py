"""The task that owns the planner: hears what came, plans the next step, tells what happened."""

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from plancha.contracts import Clock
from plancha.inbox import Admitted, Inbox
from plancha.messages import (
    Cancel,
    Controls,
    Downstream,
    Pause,
    Plan,
    Reload,
    Resume,
    StepDone,
    StepFailed,
    Truncate,
)
from plancha.planning.planner import Planner


async def scheduling(
    inbox: MemoryObjectReceiveStream[Inbox],
    plans: MemoryObjectSendStream[Plan],
    downstream: MemoryObjectSendStream[Downstream],
    planner: Planner,
    clock: Clock,
) -> None:
    """Task: one round per wake-up. The next step starts before anybody is told of the last.

    A deadline is a wake-up too, also while a step is in flight: it may be one that never ends.
    """
    while True:
        deadline_s = planner.deadlines.next_s
        try:
            first = await _first(inbox, None if deadline_s is None else deadline_s - clock())
        except anyio.EndOfStream:
            return
        now = clock()
        take_in(planner, first + _rest(inbox), now)
        planner.expire(now)
        plan = None if planner.in_flight else planner.plan(now)
        if plan is not None:
            await plans.send(plan)
        frame = planner.report.take_frame(planner.load())
        if frame is not None:
            await downstream.send(frame)


def take_in(planner: Planner, messages: list[Inbox], now: float) -> None:
    """Apply what came in one round; the step's outcome last, so that an abort beats its tokens."""
    outcome: StepDone | StepFailed | None = None
    for message in messages:
        match message:
            case Admitted(sequences, shed):
                if shed:
                    planner.shed(shed, now)
                for sequence in sequences:
                    planner.add(sequence, now)
            case Controls(controls):
                for control in controls:
                    match control:
                        case Cancel(stream):
                            planner.cancel(stream, now)
                        case Truncate(stream, keep):
                            planner.truncate(stream, keep, now)
                        case Pause(stream):
                            planner.pause(stream)
                        case Resume(stream):
                            planner.resume(stream, now)
            case Reload():
                pass  # in force already; that the next step is planned by it is all there is to do
            case _:
                outcome = message
    if isinstance(outcome, StepDone):
        planner.apply(outcome, now)
    elif outcome is not None:
        planner.fail(now)


async def _first(inbox: MemoryObjectReceiveStream[Inbox], wait_s: float | None) -> list[Inbox]:
    """What comes next, or nothing when that takes longer than `wait_s`; None: however long."""
    if wait_s is None:
        return [await inbox.receive()]
    with anyio.move_on_after(wait_s):
        return [await inbox.receive()]
    return []


def _rest(inbox: MemoryObjectReceiveStream[Inbox]) -> list[Inbox]:
    messages: list[Inbox] = []
    try:
        while True:
            messages.append(inbox.receive_nowait())
    except (anyio.WouldBlock, anyio.EndOfStream):
        return messages
