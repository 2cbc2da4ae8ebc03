"""Every accepted request's account, from its acceptance until it has come to its end."""

import time
from collections.abc import Iterable

from plancha.accounting.account import Account
from plancha.accounting.journal import Journal
from plancha.contracts import Clock
from plancha.inbox import Admitted, Inbox
from plancha.ledger import Closed, Counts, Opened
from plancha.messages import (
    Bill,
    Cancel,
    Control,
    Controls,
    Finished,
    Joined,
    Truncate,
)
from plancha.planning.batch import Batch
from plancha.plans import StepDone
from plancha.record import Outcome
from plancha.sequence import Sequence

CHECKPOINT_S = 1.0
"""So often what runs is counted: after a crash, this much of it may not have been written."""


class Accounts:
    """Owned by the scheduling task, which tells it whatever happens, in order; nothing per token.

    What is to be written goes to the journal. `wall` is the wall clock; all else is told the time.
    """

    def __init__(self, journal: Journal, batch: Batch, wall: Clock = time.time) -> None:
        self.journal = journal
        self._batch = batch
        self._wall = wall
        self._accounts: dict[int, Account] = {}  # by stream: those that are not closed
        self._begun: dict[str, Account] = {}  # by request: those whose counts can change
        self._changed = False  # steps were made since the last checkpoint
        self._checkpoint_s = 0.0  # when the next is due

    @property
    def next_s(self) -> float | None:
        """When there is something to do, even if nothing happens until then; None: never."""
        return self._checkpoint_s if self._changed and self._begun else None

    def hear(self, messages: Iterable[Inbox]) -> None:
        """What the planner is about to be told."""
        for message in messages:
            match message:
                case StepDone():
                    self._changed = True
                case Admitted(sequences):
                    self._open(sequences)
                case Controls(controls):
                    for control in controls:
                        self._control(control)

    def tell(self, joined: Iterable[Joined], finished: Iterable[Finished]) -> None:
        """What the gateways were told."""
        for join in joined:
            account = self._accounts[join.stream]
            account.joined(join.stream, join.cached_tokens)
            self._begun[account.request.id] = account
        for end in finished:
            account = self._accounts[end.stream]
            decides = account.request.stop_strings
            account.outputs[end.stream].end(end, gateway_decides=decides)
            self._close_if_settled(account)

    def checkpoint(self, now: float) -> None:
        """Once in a while, the counts of those whose counts have changed."""
        if not self._changed or now < self._checkpoint_s:
            return
        self._changed, self._checkpoint_s = False, now + CHECKPOINT_S
        lengths, computed = self._batch.length.tolist(), self._batch.computed.tolist()
        changed: list[Counts] = []
        for account in self._begun.values():
            counted = account.counted(lengths, computed)
            if counted != account.checkpoint:
                account.checkpoint = counted
                changed.append(account.counts(counted))
        self.journal.count(changed)

    def abandon(self, outcome: Outcome) -> None:
        """The worker ends, and with it whatever still runs."""
        lengths, computed = self._batch.length.tolist(), self._batch.computed.tolist()
        for account in list(self._accounts.values()):
            for output in account.outputs.values():
                if not output.settled:
                    output.abandon(outcome, lengths, computed)
            self._close_if_settled(account)

    def _open(self, sequences: tuple[Sequence, ...]) -> None:
        account = Account.of(sequences)
        request = account.request
        for stream in account.outputs:
            self._accounts[stream] = account
        self.journal.open(
            Opened(
                request=request.id,
                label=request.label,
                tenant=request.tenant,
                model=request.model,
                opened_s=request.created_s,
            )
        )

    def _control(self, control: Control) -> None:
        account = self._accounts.get(control.stream)
        if account is None:
            return
        output = account.outputs[control.stream]
        match control:
            case Truncate(keep=keep):
                output.truncate(keep)
            case Cancel():
                output.cancel(control)
        self._close_if_settled(account)

    def _close_if_settled(self, account: Account) -> None:
        streams = tuple(account.outputs)
        if not account.settled or streams[0] not in self._accounts:
            return
        for stream in streams:
            del self._accounts[stream]
        self._begun.pop(account.request.id, None)
        counts, finished_s = account.counts(account.counted()), self._wall()
        bill = Bill(
            streams=streams,
            input_tokens=counts.input_tokens,
            cached_tokens=counts.cached_tokens,
            output_tokens=counts.output_tokens,
            outcome=account.outcome,
            finished_s=finished_s,
        )
        self.journal.close(Closed(counts=counts, outcome=bill.outcome, closed_s=finished_s), bill)
