"""Who is let in: the one place that accepts or refuses, by what the worker can ever hold."""

from itertools import count
from secrets import randbits

import attrs
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from plancha.accounting.journal import Journal
from plancha.calls.grammar_check import NO_GRAMMARS
from plancha.contracts import Allocator, Clock, Site
from plancha.failure import Failure
from plancha.inbox import Admitted, Inbox
from plancha.messages import (
    Ask,
    Downstream,
    InferenceRequest,
    Int32s,
    Rejected,
    Reload,
    Submit,
    Upstream,
)
from plancha.metrics.meters import Meters
from plancha.overload.overload import Overload
from plancha.sequence import Sequence, Turn

SEED_BITS = 64
STRIDE = 0x9E3779B97F4A7C15
"""Between the seeds of one prompt's outputs; the first has the seed that was asked for."""


@attrs.define(kw_only=True)
class Admission:
    """Turns a request into sequences, or says in numbers why it cannot be served."""

    site: Site
    allocator: Allocator  # asked, never changed
    overload: Overload
    meters: Meters = attrs.field(factory=Meters)
    journal: Journal = attrs.field(factory=Journal)
    _arrivals: "count[int]" = attrs.field(factory=count, init=False)

    def admit(self, submit: Submit, now: float) -> Admitted | Failure:
        """A request's sequences in the order of the streams, or why there are none."""
        shed = self._judge(submit, now)
        if isinstance(shed, Failure):
            self.meters.refused(shed)
            return shed
        sequences = self._sequences(submit, now)
        self.overload.accepted(sequences, now)
        return Admitted(sequences, shed)

    def _judge(self, submit: Submit, now: float) -> tuple[int, ...] | Failure:
        """Tiers that must go for it, or why it is refused.

        What can never be served is told before what cannot be now, since trying again is no use.
        """
        request = submit.request
        if request.grammar is not None and not self.site.loaded().grammars:
            return NO_GRAMMARS
        for prompt in request.prompts:
            failure = self._never_fits(prompt, request)
            if failure is not None:
                return failure
        return self.journal.refusal or self.overload.judge(submit, now)

    def _sequences(self, submit: Submit, now: float) -> tuple[Sequence, ...]:
        request = submit.request
        sequences: list[Sequence] = []
        turn = Turn()
        for index, prompt in enumerate(request.prompts):
            first = self._sequence(submit, index, 0, prompt, turn, now)
            sequences.append(first)
            for choice in range(1, request.n):
                child = self._sequence(submit, index, choice, prompt, turn, now)
                child.parent = first
                sequences.append(child)
        return tuple(sequences)

    def _sequence(
        self, submit: Submit, index: int, choice: int, prompt: Int32s, turn: Turn, now: float
    ) -> Sequence:
        request = submit.request
        sampling = request.sampling
        eos = () if sampling.ignore_eos else self.site.loaded().stop_ids
        seed = randbits(SEED_BITS) if sampling.seed is None else sampling.seed + choice * STRIDE
        return Sequence(
            request=request,
            stream=submit.streams[index * request.n + choice],
            arrival=next(self._arrivals),
            arrived_s=now,
            prompt_tokens=int(prompt.size),
            token_ids=prompt,
            length=int(prompt.size),
            max_length=self._max_length(int(prompt.size), request),
            stop_ids=tuple(dict.fromkeys((*eos, *sampling.stop_token_ids))),
            seed=seed % 2**SEED_BITS,
            tier=self.site.tenant(request.tenant).tier,
            public_tokens=request.public_tokens[index] if request.public_tokens else 0,
            turn=turn,
        )

    def _max_length(self, prompt: int, request: InferenceRequest) -> int:
        if request.max_tokens is not None and not request.clamp:
            return prompt + request.max_tokens
        geometry = self.site.loaded()
        most = min(geometry.context_length, geometry.blocks * self.site.block_size)
        return most if request.max_tokens is None else min(most, prompt + request.max_tokens)

    def _never_fits(self, prompt: Int32s, request: InferenceRequest) -> Failure | None:
        tokens = int(prompt.size)
        asked = None if request.clamp else request.max_tokens
        least = max(1, request.sampling.min_tokens)
        wanted = tokens + (least if asked is None else asked)
        context = self.site.loaded().context_length
        blocks = self.site.loaded().blocks
        if wanted > context:
            what = f"at least {least} more" if asked is None else f"{asked} output tokens"
            param = "min_tokens" if asked is None and least > 1 else None
            if tokens < context and asked is not None:
                param = request.max_tokens_param
            return Failure(
                "invalid",
                f"The context holds {context} tokens; this request has {tokens} prompt tokens "
                f"and wants {what}.",
                param,
                "context_length_exceeded",
            )
        need = self.allocator.need(wanted)
        if need > blocks:
            return Failure(
                "invalid",
                f"This request needs {need} KV blocks for {tokens} prompt tokens and "
                f"{wanted - tokens} output tokens; the pool has {blocks}.",
                None,
                "kv_pool_exceeded",
            )
        return None


async def admission(
    upstream: MemoryObjectReceiveStream[Upstream],
    inbox: MemoryObjectSendStream[Inbox],
    downstream: MemoryObjectSendStream[Downstream],
    asks: MemoryObjectSendStream[Ask],
    policy: Admission,
    clock: Clock,
) -> None:
    """Task: pass on what gateways send, in their order, so that no cancel overtakes its submit."""
    async for message in upstream:
        if isinstance(message, Ask):
            await asks.send(message)
            continue
        if isinstance(message, Reload):
            policy.site.reload(message)  # before whoever comes after it in this channel
        if not isinstance(message, Submit):
            await inbox.send(message)
            continue
        admitted = policy.admit(message, clock())
        if isinstance(admitted, Failure):
            await downstream.send(Rejected(message.streams, admitted))
        else:
            await inbox.send(admitted)
