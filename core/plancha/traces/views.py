"""What is told of a trace: to its tenant what is the tenant's own, to operators all of it.

What is known of the others' memory, of who overtook whom and of a scheduler's own words would tell
one tenant of another, so that is for operators alone.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, Self

import attrs
import orjson

from plancha.contracts import Clock
from plancha.messages import Answer, Ask
from plancha.planning.planner import Planner
from plancha.sequence import Sequence
from plancha.traces.trace import REASONS, Moment, Omitted, Reason, Wait
from plancha.traces.traces import RequestTrace, SequenceTrace

Rank = tuple[int, int]
"""Tier and arrival."""


@attrs.frozen(eq=False)
class _Line:
    """Who waits, the first one first: everybody, and who is of one tenant."""

    all: list[Rank]
    own: list[Rank]

    @classmethod
    def of(cls, planner: Planner, tenant: str) -> Self:
        waiting = [
            each for each in planner.sequences.values() if each.slot is None and not each.paused
        ]
        return cls(
            sorted(map(_rank, waiting)),
            sorted(_rank(each) for each in waiting if each.tenant == tenant),
        )


@attrs.frozen(eq=False)
class Tracing:
    """Answers for the planner's traces, between two of its steps and on its event loop."""

    planner: Planner
    clock: Clock

    async def answer(self, ask: Ask) -> Answer:
        """JSON. For who is neither the owner nor an operator there is no such request."""
        found = self.planner.traces.find(ask.request_id)
        if found is None or not (ask.any_tenant or found.tenant == ask.tenant):
            return Answer(ask.number)
        return self._answer(ask, found, whole=ask.any_tenant)

    def _answer(self, ask: Ask, request: RequestTrace, *, whole: bool) -> Answer:
        now, line = self.clock(), _Line.of(self.planner, request.tenant)
        told: dict[str, Any] = {"id": request.id, "object": "request.trace"}
        if whole:
            told |= {"tenant": request.tenant, "tier": request.tier}
        told["age_s"] = _seconds(now - request.accepted_s)
        told["sequence_count"] = request.count
        told["sequences"] = [
            {
                "prompt": index // request.n,
                "choice": index % request.n,
                **self._sequence(each, request, line, now, whole=whole),
            }
            for index, each in enumerate(request.sequences)
        ]
        return Answer(ask.number, content=orjson.dumps(told))

    def _sequence(
        self,
        traced: SequenceTrace,
        request: RequestTrace,
        line: "_Line",
        now: float,
        *,
        whole: bool,
    ) -> dict[str, Any]:
        sequence = self.planner.sequences.get(traced.stream)
        state = _ended(traced) if sequence is None else self._live(sequence, line, now, whole=whole)
        begun_s = traced.first_token_s if sequence is None else sequence.first_token_s
        return {
            **state,
            "history": list(_history(traced, begun_s, request.accepted_s, now, whole=whole)),
        }

    def _live(
        self, sequence: Sequence, line: "_Line", now: float, *, whole: bool
    ) -> dict[str, Any]:
        """How it is doing; a reason that nobody has said for a while is asked for anew."""
        batch, slot = self.planner.batch, sequence.slot
        if slot is not None:
            return {
                "state": "running",
                "prompt_tokens": sequence.prompt_tokens,
                "computed_tokens": int(batch.computed[slot]),
                "output_tokens": int(batch.length[slot]) - sequence.prompt_tokens,
            }
        reason = self._why_waiting(sequence, now)
        told = {
            "state": "waiting",
            "reason": _word(reason, whole=whole),
            "position": _position(sequence, line.own),
        }
        if whole:
            told["position_of_all"] = _position(sequence, line.all)
        return {
            **told,
            "prompt_tokens": sequence.prompt_tokens,
            "computed_tokens": sequence.computed,
            "output_tokens": sequence.length - sequence.prompt_tokens,
        }

    def _why_waiting(self, sequence: Sequence, now: float) -> Reason:
        """By the latest plan if that looked at it, else by the order, which is written down too."""
        planner, wait = self.planner, sequence.trace.wait
        if wait is not None:
            said = wait.latest_step == planner.joining.step
            if said or wait.reason in ("sibling", "engine"):
                return wait.reason
        return sequence.trace.waits(planner.standing.reason(sequence), now).reason


def _ended(traced: SequenceTrace) -> dict[str, Any]:
    return {
        "state": "ended",
        "prompt_tokens": traced.prompt_tokens,
        "output_tokens": traced.output_tokens,
    }


def _position(sequence: Sequence, line: list[Rank]) -> int:
    """From 1 on, if tiers and arrival were all that counts: an estimate."""
    return 1 + bisect_left(line, _rank(sequence))


def _rank(sequence: Sequence) -> Rank:
    return sequence.tier, sequence.arrival


def _history(
    traced: SequenceTrace, first_token_s: float | None, since_s: float, now: float, *, whole: bool
) -> Iterator[dict[str, Any]]:
    first, latest = traced.trace.entries()
    yield {"event": "accepted", "at_s": 0.0}
    untold = first_token_s
    for part, entries in enumerate((first, latest)):
        omitted = traced.trace.omitted
        if part and omitted is not None:
            yield _omission(omitted, since_s)
        for entry in entries:
            begins_s = entry.from_s if isinstance(entry, Wait) else entry.at_s
            # A step's outcome is there before what the next plan does at the same time.
            joins = isinstance(entry, Moment) and entry.what == "joined"
            if untold is not None and begins_s >= untold and not joins:
                yield {"event": "first_token", "at_s": _seconds(untold - since_s)}
                untold = None
            yield _entry(entry, since_s, now, whole=whole)
    if untold is not None:
        yield {"event": "first_token", "at_s": _seconds(untold - since_s)}


def _entry(entry: Wait | Moment, since_s: float, now: float, *, whole: bool) -> dict[str, Any]:
    if isinstance(entry, Moment):
        details = {**entry.details}
        if "reason" in details:
            details["reason"] = _word(str(details["reason"]), whole=whole)
        return {"event": entry.what, "at_s": _seconds(entry.at_s - since_s), **details}
    told: dict[str, Any] = {
        "event": "waiting",
        "reason": _word(entry.reason, whole=whole),
        "from_s": _seconds(entry.from_s - since_s),
        "to_s": _seconds((now if entry.to_s is None else entry.to_s) - since_s),
        "steps": entry.steps,
    }
    if entry.needs_blocks is not None:
        told["needs_blocks"] = entry.needs_blocks
    if whole and entry.available_blocks is not None:
        told["available_blocks"] = entry.available_blocks
    if whole and entry.overtaken:
        told["overtaken"] = entry.overtaken
    return told


def _omission(omitted: Omitted, since_s: float) -> dict[str, Any]:
    return {
        "event": "omitted",
        "entries": omitted.entries,
        "from_s": _seconds(omitted.from_s - since_s),
        "to_s": _seconds(omitted.to_s - since_s),
        "steps": omitted.steps,
    }


def _word(reason: str, *, whole: bool) -> str:
    """A plugin's own word may name another tenant."""
    return reason if whole or reason in REASONS else "order"


def _seconds(seconds: float) -> float:
    return round(seconds, 6)
