"""The task that owns the planner: hears what came, plans the next step, tells what happened."""

import anyio
import attrs
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from plancha.accounting.accounts import Accounts
from plancha.contracts import Clock
from plancha.inbox import Admitted, Inbox, LedgerTurned
from plancha.messages import (
    Cancel,
    Controls,
    Downstream,
    Load,
    Pause,
    Reload,
    Resume,
    Truncate,
)
from plancha.planning.planner import Planner
from plancha.plans import Plan, StepDone, StepFailed


async def scheduling(
    inbox: MemoryObjectReceiveStream[Inbox],
    plans: MemoryObjectSendStream[Plan],
    downstream: MemoryObjectSendStream[Downstream],
    planner: Planner,
    accounts: Accounts,
    clock: Clock,
) -> None:
    """Task: one round per wake-up. The next step starts before anybody is told of the last.

    A deadline is a wake-up too, also while a step is in flight: it may be one that never ends.
    """
    while True:
        deadline_s = _wake_s(planner, accounts)
        try:
            first = await _first(inbox, None if deadline_s is None else deadline_s - clock())
        except anyio.EndOfStream:
            return
        now = clock()
        messages = first + _rest(inbox)
        accounts.hear(messages)
        take_in(planner, messages, now)
        planner.expire(now)
        plan = None if planner.in_flight else planner.plan(now)
        if plan is not None:
            await plans.send(plan)
        frame = planner.report.take_frame(_load(planner, accounts))
        if frame is not None:
            await downstream.send(frame)
            accounts.tell(frame.joined, frame.finished)  # no stream is settled before it ends
        accounts.checkpoint(now)


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
            case Reload() | LedgerTurned():
                pass  # in force already; that the next step is planned by it is all there is to do
            case _:
                outcome = message
    if isinstance(outcome, StepDone):
        planner.apply(outcome, now)
    elif outcome is not None:
        planner.fail(now)


def _wake_s(planner: Planner, accounts: Accounts) -> float | None:
    """When there is something to do at the latest. A step in flight wakes for the accounts."""
    deadline_s = planner.deadlines.next_s
    checkpoint_s = None if planner.in_flight else accounts.next_s
    if deadline_s is None or checkpoint_s is None:
        return deadline_s if checkpoint_s is None else checkpoint_s
    return min(deadline_s, checkpoint_s)


def _load(planner: Planner, accounts: Accounts) -> Load:
    load = planner.load()
    if accounts.journal.writable:
        return load
    return attrs.evolve(load, ledger_writable=False)


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
