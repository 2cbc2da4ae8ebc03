"""Tokens per minute: a bucket for each tenant that has such a limit."""

import math
from collections.abc import Iterable, Mapping

import attrs

from plancha.contracts import Site
from plancha.failure import Failure
from plancha.sequence import Sequence

MINUTE_S = 60.0


@attrs.define
class Bucket:
    """Full at first; holds what is refilled in a minute, and may be in debt."""

    level: float  # tokens
    at_s: float  # when it held that

    def refill(self, limit: int, now: float) -> None:
        """What flowed in since, at the tenant's present limit."""
        self.level = min(limit, self.level + (now - self.at_s) * limit / MINUTE_S)
        self.at_s = now


@attrs.define
class _Prompt:
    """One that was paid for. Its outputs end one by one."""

    tokens: int
    outputs: int = 0  # not yet ended
    prefilled: int = 0


@attrs.define(eq=False)
class Quotas:
    """What each tenant may still take.

    **The promise.** A request is accepted while its tenant's bucket is above zero, and pays its
    prompt at once; output is paid for as it comes, so both may take the bucket below zero. It
    refills evenly and holds one minute's tokens. A prompt with several outputs is paid for once,
    and what of it was not computed when the last of them ends comes back. Limits are looked up each
    time: a new one holds from the next token on.
    """

    site: Site
    _buckets: dict[str, Bucket] = attrs.field(factory=dict, init=False)
    _prompts: dict[int, _Prompt] = attrs.field(factory=dict, init=False)  # by each output's stream

    def refusal(self, tenant: str, now: float) -> Failure | None:
        """Why a request of that tenant cannot be accepted now.

        `retry_after_s` is when the bucket is above zero again, if nothing more is taken.
        """
        limit = self.site.tenant(tenant).tokens_per_minute
        if limit is None:
            return None
        level = self._bucket(tenant, limit, now).level
        if level > 0:
            return None
        return Failure(
            "busy",
            f"The limit of {limit} tokens per minute is used up; {math.ceil(-level)} are owed.",
            None,
            "tokens_per_minute",
            math.floor(-level * MINUTE_S / limit) + 1,
        )

    def accepted(self, sequences: Iterable[Sequence], now: float) -> None:
        """A request's sequences: its prompts are paid for."""
        for sequence in sequences:
            if self.site.tenant(sequence.tenant).tokens_per_minute is None:
                continue
            if sequence.parent is None:
                prompt = _Prompt(sequence.prompt_tokens)
                self._take(sequence.tenant, prompt.tokens, now)
            else:
                prompt = self._prompts[sequence.parent.stream]
            prompt.outputs += 1
            self._prompts[sequence.stream] = prompt

    def charge(self, output: Mapping[str, int], now: float) -> None:
        """A step's output tokens, by tenant."""
        limits = self.site.tenant
        for tenant, tokens in output.items():
            if limits(tenant).tokens_per_minute is not None:
                self._take(tenant, tokens, now)

    def ended(self, sequence: Sequence, now: float) -> None:
        """With the last output of a prompt what was not computed of it comes back."""
        prompt = self._prompts.pop(sequence.stream, None)
        if prompt is None:
            return
        prompt.outputs -= 1
        prompt.prefilled = max(prompt.prefilled, sequence.prefilled)
        if prompt.outputs == 0 and prompt.prefilled < prompt.tokens:
            self._take(sequence.tenant, prompt.prefilled - prompt.tokens, now)

    def _take(self, tenant: str, tokens: int, now: float) -> None:
        limit = self.site.tenant(tenant).tokens_per_minute
        if limit is not None:
            self._bucket(tenant, limit, now).level -= tokens

    def _bucket(self, tenant: str, limit: int, now: float) -> Bucket:
        bucket = self._buckets.get(tenant)
        if bucket is None:
            bucket = self._buckets[tenant] = Bucket(limit, now)
        bucket.refill(limit, now)
        return bucket
