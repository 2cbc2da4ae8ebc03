"""What a worker does when more is asked of it than it can do, in one place.

Admission asks before it accepts; the planner tells what became of who was accepted.
"""

from typing import Self

import attrs

from plancha.contracts import Site
from plancha.failure import Failure
from plancha.messages import Submit
from plancha.overload.backlog import Backlog, Full
from plancha.overload.quota import Quotas
from plancha.overload.shedding import Shedding
from plancha.planning.batch import Batch
from plancha.planning.room import Room
from plancha.planning.step_cost import StepCost
from plancha.sequence import Sequence


@attrs.frozen(kw_only=True, eq=False)
class Overload:
    """Queue bounds, quotas and shedding. Called by admission and scheduling, on one thread.

    A sequence is told of exactly once as accepted and exactly once as ended.
    """

    backlog: Backlog
    quotas: Quotas
    shedding: Shedding

    @classmethod
    def of_worker(cls, site: Site, batch: Batch, room: Room, cost: StepCost) -> Self:
        """Of the worker whose batch, room and cost of steps these are."""
        backlog = Backlog(site=site, batch=batch, room=room)
        shedding = Shedding(site=site, batch=batch, backlog=backlog, cost=cost)
        return cls(backlog=backlog, quotas=Quotas(site), shedding=shedding)

    def judge(self, submit: Submit, now: float) -> tuple[int, ...] | Failure:
        """Tiers whose waiting sequences must go for this request, or why it is refused."""
        request, added = submit.request, len(submit.streams)
        tenant = request.tenant
        most = self.backlog.most(tenant)
        if added > most:
            return Failure(
                "invalid",
                f"This request has {added} sequences; {most} may run and wait at most.",
                None,
                "too_many_sequences",
            )
        own = self.backlog.full_for(tenant, added)
        if own is not None:
            retry_after_s = self.shedding.retry_after_s(tenant, now)
            return _queue_full("your queue", own, added, "tenant_queue_full", retry_after_s)
        whole = self.backlog.full(added)
        if whole is not None:
            retry_after_s = self.shedding.retry_after_all_s(now)
            return _queue_full("the queue", whole, added, "queue_full", retry_after_s)
        used_up = self.quotas.refusal(tenant, now)
        if used_up is not None:
            return used_up
        return self.shedding.judge(tenant, int(request.prompts[0].size), now)

    def accepted(self, sequences: tuple[Sequence, ...], now: float) -> None:
        """A request's sequences; the planner will have them in a moment."""
        self.backlog.accepted(sequences)
        self.quotas.accepted(sequences, now)

    def joined(self, sequence: Sequence, cached: int) -> None:
        """It enters the batch for the first time, with `cached` tokens of its prompt computed."""
        sequence.turn.come = True
        self.backlog.joined(sequence)
        self.shedding.joined(sequence, cached)

    def ended(self, sequence: Sequence, now: float) -> None:
        """In whatever state, and out of the batch by now."""
        self.backlog.ended(sequence)
        self.quotas.ended(sequence, now)


def _queue_full(name: str, full: Full, added: int, code: str, retry_after_s: int) -> Failure:
    return Failure(
        "busy",
        f"{full.waiting} sequences are waiting and this request would add {added}; "
        f"{name} holds {full.limit}.",
        None,
        code,
        retry_after_s,
    )
