"""What the worker's tasks measure as they go: plain numbers, a few operations a step.

Durations are differences of the worker's one monotonic clock, so no change of the wall clock ever
shows in them. What the planner knows at any time is asked of it when a scraper comes, and not kept
here.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping

import attrs
import numpy as np

from plancha.failure import Failure
from plancha.messages import FinishReason, Int32s
from plancha.metrics.histogram import Histogram
from plancha.metrics.recent import Recent
from plancha.planning.batch import Batch
from plancha.plans import Plan, StepDone
from plancha.sequence import Sequence

FIRST_TOKEN_S = (
    *(0.01, 0.02, 0.05, 0.075, 0.1, 0.125, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5),
    *(0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 20.0, 30.0, 60.0),
)
INTER_TOKEN_S = (
    *(0.001, 0.002, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08),
    *(0.1, 0.12, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0),
)
"""Fine where it matters to a reader: about 0.1 s from token to token, 0.3 s to the first."""

QUEUE_S = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
WHOLE_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
SEQUENCES = tuple(2.0**power for power in range(13))
TOKENS = tuple(2.0**power for power in range(17))

REASONS = frozenset(
    {
        "context_length_exceeded",
        "kv_pool_exceeded",
        "ledger_unavailable",
        "overloaded",
        "queue_full",
        "queue_timeout",
        "request_timeout",
        "tenant_queue_full",
        "tokens_per_minute",
        "too_many_sequences",
        "unsupported_parameter",
    }
)
"""Codes of failures that have a series of their own."""

OTHER = "other"


@attrs.define(eq=False)
class Meters:
    """Told by admission and planner, on one thread. Counts never go down."""

    first_token: Histogram = attrs.field(factory=lambda: Histogram(*FIRST_TOKEN_S))
    inter_token: Histogram = attrs.field(factory=lambda: Histogram(*INTER_TOKEN_S))
    queue: Histogram = attrs.field(factory=lambda: Histogram(*QUEUE_S))
    prefill: Histogram = attrs.field(factory=lambda: Histogram(*FIRST_TOKEN_S))
    decode: Histogram = attrs.field(factory=lambda: Histogram(*WHOLE_S))
    whole: Histogram = attrs.field(factory=lambda: Histogram(*WHOLE_S))
    step: Histogram = attrs.field(factory=lambda: Histogram(*INTER_TOKEN_S))
    step_sequences: Histogram = attrs.field(factory=lambda: Histogram(*SEQUENCES))
    step_tokens: Histogram = attrs.field(factory=lambda: Histogram(*TOKENS))
    busy_s: float = 0.0  # of the executor, by its own word
    prefill_tokens: int = 0
    replayed_tokens: int = 0  # of those, computed before and lost by a preemption
    decode_tokens: int = 0
    computed_prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    queried_prompt_tokens: int = 0  # that the prefix cache was asked for
    failed_steps: int = 0
    generated: Counter[str] = attrs.field(factory=Counter)  # output tokens, by tenant
    prompts: Counter[str] = attrs.field(factory=Counter)  # prompt tokens, cached ones too, likewise
    ended: Counter[FinishReason] = attrs.field(factory=Counter)  # sequences
    ended_of: defaultdict[str, Counter[FinishReason]] = attrs.field(
        factory=lambda: defaultdict(Counter)
    )  # by tenant
    rejected: Counter[str] = attrs.field(factory=Counter)  # by reason
    recent_first_tokens: Recent = attrs.field(factory=Recent)
    recent_inter_tokens: Recent = attrs.field(factory=Recent)

    def refused(self, failure: Failure) -> None:
        """A request was not accepted, or a sequence ended before its first step."""
        self.rejected[failure.code if failure.code in REASONS else OTHER] += 1

    def joined(self, sequence: Sequence, cached: int, now: float) -> None:
        """It enters the batch for the first time, `cached` tokens of its prompt being there."""
        sequence.joined_s = now
        self.queue.observe(now - sequence.arrived_s)
        if sequence.parent is None and not sequence.request.prompt_logprobs:
            self.queried_prompt_tokens += sequence.prompt_tokens
            self.cached_prompt_tokens += cached
            self.prompts[sequence.tenant] += cached

    def stepped(self, plan: Plan, done: StepDone, seconds: float) -> None:
        """A step has ended, `seconds` after it was planned."""
        self.step.observe(seconds)
        self.step_sequences.observe(plan.slots.size)
        self.busy_s += done.seconds

    def appended(
        self, plan: Plan, slots: Int32s, output: Mapping[str, int], batch: Batch, now: float
    ) -> None:
        """The step's tokens are in the batch, those of `slots`, and nobody has ended of them.

        Who decodes has a token in every step, so one duration is all of theirs; only for those that
        have joined since and had no token yet there is anything to look up.
        """
        tokens, decodes, prefilled = slots.size, plan.slots.size, self.prefill_tokens
        goers_on = output
        if batch.fresh.any():
            fresh_rows = np.flatnonzero(batch.fresh[plan.slots])
            decodes -= fresh_rows.size
            for row in fresh_rows.tolist():
                sequence = batch.sequences[plan.slots[row]]
                start, count = int(plan.starts[row]), int(plan.counts[row])
                if sequence is not None and sequence.length > sequence.prompt_tokens:
                    resumed = int(plan.samples[row])  # its latest token had not been computed yet
                    decodes, count = decodes + resumed, count - resumed
                self._prefilled(sequence, start, count)
            newcomers = self._first_tokens(batch, now)
            tokens -= newcomers.total()
            goers_on = Counter(output) - newcomers
        if tokens:
            gap_s = now - batch.tokens_at_s
            self.inter_token.observe(gap_s, tokens)
            self.recent_inter_tokens.observe(now, gap_s, goers_on)
        batch.tokens_at_s = now
        self.decode_tokens += decodes
        self.step_tokens.observe(decodes + self.prefill_tokens - prefilled)
        self.generated.update(output)

    def left_in_flight(self, sequence: Sequence, prefilled: int) -> None:
        """It ends while a step computes its prompt as far as that, which is asked for all the same.

        `sequence.prefilled` is how far it was before.
        """
        if sequence.parent is None:
            self._prompt_computed(sequence, max(0, prefilled - sequence.prefilled))

    def ended_by(
        self, sequence: Sequence, reason: FinishReason, failure: Failure | None, now: float
    ) -> None:
        """A sequence has ended, in whatever state."""
        self.ended[reason] += 1
        self.ended_of[sequence.tenant][reason] += 1
        if failure is not None and not sequence.joined_once:
            self.refused(failure)
        if reason in ("stop", "length"):
            self.whole.observe(now - sequence.arrived_s)
            if sequence.first_token_s is not None:
                self.decode.observe(now - sequence.first_token_s)

    def _prefilled(self, sequence: Sequence | None, start: int, count: int) -> None:
        """A row that was no decode. `sequence` None: it has left meanwhile."""
        self.prefill_tokens += count
        if sequence is None:
            return
        end = min(start + count, sequence.prompt_tokens)
        new = 0  # the first output of a prompt answers for it
        if sequence.parent is None:
            new = max(0, end - max(start, sequence.prefilled))
        self._prompt_computed(sequence, new)
        self.replayed_tokens += count - new

    def _prompt_computed(self, sequence: Sequence, tokens: int) -> None:
        self.computed_prompt_tokens += tokens
        self.prompts[sequence.tenant] += tokens

    def _first_tokens(self, batch: Batch, now: float) -> Counter[str]:
        """How many of each tenant's had their first token since they joined, in this step."""
        found: Counter[str] = Counter()
        for slot in np.flatnonzero(batch.fresh).tolist():
            sequence = batch.sequences[slot]
            if sequence is None:
                batch.fresh[slot] = False
            elif batch.length[slot] > sequence.length:
                batch.fresh[slot] = False
                found[sequence.tenant] += 1
                self._token_of_newcomer(sequence, now)
        return found

    def _token_of_newcomer(self, sequence: Sequence, now: float) -> None:
        if sequence.first_token_s is None:
            sequence.first_token_s = now
            self.first_token.observe(now - sequence.arrived_s)
            self.recent_first_tokens.observe(now, now - sequence.arrived_s, {sequence.tenant: 1})
            self.prefill.observe(now - sequence.joined_s)
        elif sequence.last_token_s is not None:
            gap_s = now - sequence.last_token_s
            self.inter_token.observe(gap_s)
            self.recent_inter_tokens.observe(now, gap_s, {sequence.tenant: 1})
