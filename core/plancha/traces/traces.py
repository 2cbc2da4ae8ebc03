"""The traces of every request that runs, and of those that ended lately."""

from collections import OrderedDict

import attrs

from plancha.failure import Failure
from plancha.messages import FinishReason
from plancha.sequence import Sequence
from plancha.traces.trace import Trace

MOST_ENDED = 1_000
"""Requests that are remembered after their end."""

MOST_SEQUENCES = 32
"""Of one request that has a trace: all of a thousand would take a megabyte, when told."""


@attrs.define(eq=False, kw_only=True)
class SequenceTrace:
    """One sequence's trace, and what of the sequence itself outlives it: no token of its own."""

    stream: int
    trace: Trace
    prompt_tokens: int
    output_tokens: int = 0  # these two of one that has ended
    first_token_s: float | None = None


@attrs.define(eq=False, kw_only=True)
class RequestTrace:
    """One request's first sequences: all outputs of its first prompt, then of the next."""

    id: str
    tenant: str
    tier: int
    n: int  # outputs of each prompt
    accepted_s: float  # monotonic clock
    sequences: list[SequenceTrace] = attrs.field(factory=list)
    count: int = 0  # of all its sequences, traced or not
    running: int = 0  # of them not ended


class Traces:
    """By request. Told by the planner when a sequence comes and when it ends."""

    def __init__(self) -> None:
        self._requests: dict[str, RequestTrace] = {}
        self._ended: OrderedDict[str, None] = OrderedDict()

    def find(self, request_id: str) -> RequestTrace | None:
        """None: there was never such a request, or it ended long ago."""
        return self._requests.get(request_id)

    def add(self, sequence: Sequence) -> None:
        """It was accepted; a request's sequences come in their order."""
        request = sequence.request
        traced = self._requests.get(request.id)
        if traced is None:
            traced = self._requests[request.id] = RequestTrace(
                id=request.id,
                tenant=request.tenant,
                tier=sequence.tier,
                n=request.n,
                accepted_s=sequence.arrived_s,
            )
        if traced.count < MOST_SEQUENCES:
            traced.sequences.append(
                SequenceTrace(
                    stream=sequence.stream,
                    trace=sequence.trace,
                    prompt_tokens=sequence.prompt_tokens,
                )
            )
        traced.count += 1
        traced.running += 1
        self._ended.pop(request.id, None)  # those before it may all have failed at once

    def ended(
        self, sequence: Sequence, reason: FinishReason, failure: Failure | None, now: float
    ) -> None:
        """It is out of the batch, and nothing of it goes on."""
        details = {} if failure is None else {"code": failure.code}
        sequence.trace.moved("ended", now, outcome=reason, **details)
        request = self._requests[sequence.request.id]
        for each in request.sequences:
            if each.stream == sequence.stream:
                each.output_tokens = sequence.length - sequence.prompt_tokens
                each.first_token_s = sequence.first_token_s
        request.running -= 1
        if request.running == 0:
            self._ended[request.id] = None
            if len(self._ended) > MOST_ENDED:
                oldest, _ = self._ended.popitem(last=False)
                del self._requests[oldest]
