"""Whether a tier's target for the first token can be kept, and who has to go if not.

The prediction has two parts, of which the longer one counts, since both go on at once. *Slots*:
those who join before the newcomer, over the pace at which its tier has joined lately while somebody
of it waited (`Pace`): measured, so whatever the scheduler does is in the number. *Prefill*: the
prompt tokens that are computed before its own, by the cost model that also limits steps.

**At a cold start** one join is assumed beside those that were seen, for whoever has somebody before
it: those who run have `OUTPUT_TOKENS` more to go, or as many as they may if that is less, in steps
like those so far; before the first step, all slots become free once within the share of the target
that may be filled, so that as many may wait as there are slots. Nobody is refused for an assumption
alone who would be the next: there would never be anything to measure.
"""

import math
from collections import Counter
from collections.abc import Collection

import attrs
import numpy as np

from plancha.contracts import Site
from plancha.failure import Failure
from plancha.overload.backlog import Backlog
from plancha.overload.pace import Pace
from plancha.planning.batch import TIER_SHIFT, Batch
from plancha.planning.step_cost import StepCost
from plancha.sequence import Sequence

MARGIN = 0.5
"""Share of a target that a prediction may fill: half of those who come in at 1 would miss it."""

BEHIND = 0.25
"""What is left of that share to a tier that better ones go before: their ups are its downs."""

EARLY = 0.5
"""What of that share must be filled for worse tiers to be shed: before anybody is refused."""

LEAST_RELIEF = 0.9
"""Worse tiers are shed only for a wait that is shorter than so much of what it was with them."""

OWN_SHARE = 0.5
"""Share of a target that a newcomer's own prompt counts for at most: nobody's going shortens it."""

OUTPUT_TOKENS = 256
"""Assumed of an output until it is seen how fast slots become free; chats have 200 to 350."""

LEAST_RETRY_S, MOST_RETRY_S = 1, 60
"""Bounds of every computed Retry-After; the `openai` client heeds none over 60 s."""

FOR_BETTER_TIERS = "Better tiers need all there is to keep their targets."

UNKNOWN = Pace()
"""Of a tier of which nobody has waited; never changed."""

FORGETTING = 0.98
"""Weight of a join beside the one after it, in the share of prompts that is not cached."""


@attrs.frozen
class Closing:
    """Nobody of some tier and worse ones is let in, for a better tier's target."""

    until_s: float
    tier: int  # whose target it is
    target_s: float  # as it was then


@attrs.define(kw_only=True, eq=False)
class Shedding:
    """Predicts, refuses and sheds. Told by the planner of every plan and every first joining."""

    site: Site
    batch: Batch
    backlog: Backlog
    cost: StepCost
    _paces: dict[int, Pace] = attrs.field(factory=dict, init=False)  # by tier
    _pace: Pace = attrs.field(factory=Pace, init=False)  # of whoever waits
    _joined: Counter[int] = attrs.field(factory=Counter, init=False)  # by tier, in this plan
    _queued: list[int] = attrs.field(factory=list, init=False)  # tiers left waiting for a slot
    _planned_s: float = attrs.field(default=0.0, init=False)
    _closings: dict[int, Closing] = attrs.field(factory=dict, init=False)  # this tier and worse
    _tokens: float = attrs.field(default=0.0, init=False)  # of prompts that joined lately
    _computed: float = attrs.field(default=0.0, init=False)  # of those, not found in the cache

    def joined(self, sequence: Sequence, cached: int) -> None:
        """It enters the batch for the first time; `cached` tokens of its prompt were there."""
        self._joined[sequence.tier] += 1
        self._tokens = self._tokens * FORGETTING + sequence.prompt_tokens
        self._computed = self._computed * FORGETTING + sequence.prompt_tokens - cached

    def planned(self, now: float) -> None:
        """A plan was made: whoever waits and got no slot waits on."""
        if self._queued:
            seconds = now - self._planned_s
            self._pace.observe(seconds, self._joined, now)
            for tier in self._queued:
                self._paces.setdefault(tier, Pace()).observe(seconds, self._joined, now)
        if self._joined:
            self._joined.clear()
        if self.backlog.newcomers or self._queued:
            self._queued = [] if self.backlog.free_slots else self.backlog.tiers()
            self._planned_s = now

    def judge(self, tenant: str, prompt_tokens: int, now: float) -> tuple[int, ...] | Failure:
        """The tiers to shed so that this newcomer can be accepted, mostly none; or why it cannot.

        With its tier's target out of reach, worse tiers are shed if their going would bring it back
        into reach, the worst first; nobody of a better tier, or of its own, is ever shed for it.
        """
        tier = self.site.tenant(tenant).tier
        closed_s = self._closed_s(tier, now)
        if closed_s > 0:
            return _overloaded(FOR_BETTER_TIERS, closed_s)
        target_s = self.site.ttft_targets_s.get(tier)
        if target_s is None:
            return ()
        own_s = self.cost.recompute_s(round(prompt_tokens * self._computed_share()))
        share_s = self._share(tier, now) * target_s
        most_s = share_s - min(own_s, OWN_SHARE * share_s)
        wait_s = self.wait_s(tenant, now)
        if wait_s <= EARLY * most_s:
            return ()
        shed: tuple[int, ...] = ()
        relieved_s = wait_s
        for each in reversed(self.backlog.tiers()):
            if each <= tier or relieved_s <= EARLY * most_s:
                break
            without_s = self.wait_s(tenant, now, without=(*shed, each))
            if without_s < LEAST_RELIEF * relieved_s:
                shed, relieved_s = (*shed, each), without_s
        if relieved_s <= most_s:
            if shed:
                self._closings[shed[-1]] = Closing(now + target_s, tier, target_s)
            return shed
        self._closings[tier + 1] = Closing(now + target_s, tier, target_s)
        return _overloaded(
            f"The first token would come after about {wait_s + own_s:.1f} s; "
            f"the target of this tier is {target_s:g} s.",
            wait_s - most_s,
        )

    def wait_s(self, tenant: str, now: float, *, without: Collection[int] = ()) -> float:
        """Until this tenant's next sequence would join, were the tiers `without` gone."""
        tier = self.site.tenant(tenant).tier
        ahead = self.backlog.ahead(tenant, tier)
        pace = self._paces.get(tier, UNKNOWN)
        slots_s = 0.0
        before = ahead.better + ahead.turns
        beyond = before + 1 - self.backlog.free_slots
        if beyond > 0:
            better = min(ahead.better, beyond)
            upto = [each for each in pace.tiers if each <= tier]
            target_s = self.site.ttft_targets_s.get(tier, 0.0)
            assumed_s = self._assumed_s(target_s) if before else 0.0
            slots_s = better / pace.per_s([*upto, *without], now, assumed_s)
            slots_s += (beyond - better) / pace.per_s([tier, *without], now, assumed_s)
        tokens = ahead.tokens * self._computed_share() + self._prefilling(tier)
        return max(slots_s, self._prefill_s(tokens))

    def shed(self, tier: int, now: float) -> Failure:
        """What those of a tier are told that have to go for a better one."""
        return _overloaded(FOR_BETTER_TIERS, self._closed_s(tier, now))

    def retry_after_s(self, tenant: str, now: float) -> int:
        """Until this tenant's line, as it stands, is through."""
        return _retry_after_s(self.wait_s(tenant, now))

    def retry_after_all_s(self, now: float) -> int:
        """Until all of those that wait now are through."""
        pace = self._pace.per_s(None, now, self._assumed_s(0.0))
        return _retry_after_s(self.backlog.waiting / pace)

    def _share(self, tier: int, now: float) -> float:
        better = [each for each in self._pace.tiers if each < tier]
        return MARGIN * BEHIND if self._pace.joins(better, now) >= 1 else MARGIN

    def _closed_s(self, tier: int, now: float) -> float:
        """How long nobody of it is accepted.

        A target that was raised or removed meanwhile keeps nobody out.
        """
        targets_s = self.site.ttft_targets_s
        until = [
            closing.until_s
            for each, closing in self._closings.items()
            if each <= tier and targets_s.get(closing.tier, math.inf) <= closing.target_s
        ]
        return max(until, default=now) - now

    def _assumed_s(self, target_s: float) -> float:
        """Until a slot becomes free; see the module."""
        batch, slots = self.batch, self.site.max_sequences
        if not self.cost.step_s:
            return MARGIN * target_s / slots
        left = (batch.max_length - batch.length)[batch.active]
        tokens = np.minimum(left, OUTPUT_TOKENS).mean() if left.size else OUTPUT_TOKENS
        return float(tokens) * self.cost.step_s / slots

    def _computed_share(self) -> float:
        return self._computed / self._tokens if self._tokens else 1.0

    def _prefilling(self, tier: int) -> int:
        """Tokens still to be computed of prompts in the batch, of this tier and better ones."""
        batch = self.batch
        pending = batch.length - batch.computed
        return int(pending[(pending > 1) & (batch.order >> TIER_SHIFT <= tier)].sum())

    def _prefill_s(self, tokens: float) -> float:
        """How long so many prompt tokens take, beside the decodes that there are."""
        batch, cost, block_size = self.batch, self.cost, self.site.block_size
        if not tokens or not cost.known:
            return 0.0
        decodes, attended = batch.occupied, int(batch.length.sum())
        in_a_step = self.site.max_batched_tokens - decodes
        if decodes and self.site.inter_token_target_s:
            fit = cost.prefill_tokens(
                self.site.inter_token_target_s, decodes=decodes, attended_tokens=attended, start=0
            )
            in_a_step = in_a_step if fit is None else min(in_a_step, fit)
        in_a_step = max(in_a_step, block_size)
        step_s = cost.per_step_s + cost.per_new_token_s * decodes
        step_s += cost.per_attended_token_s * attended
        return tokens / in_a_step * step_s + tokens * cost.per_new_token_s


def _overloaded(message: str, seconds: float) -> Failure:
    return Failure("busy", message, None, "overloaded", _retry_after_s(seconds))


def _retry_after_s(seconds: float) -> int:
    return min(MOST_RETRY_S, max(LEAST_RETRY_S, math.ceil(seconds)))
