"""What a step computes: who decodes, whose prompt goes on, and who may join for it."""

from collections import Counter

import attrs
import numpy as np
import numpy.typing as npt

from plancha.contracts import Site
from plancha.messages import Int32s
from plancha.planning.batch import JOINED_MASK, TIER_SHIFT, Batch
from plancha.planning.joining import Joining
from plancha.planning.step_cost import StepCost

Slots = npt.NDArray[np.intp]


@attrs.define(kw_only=True, eq=False)
class Rows:
    """Fills a step within its budget of tokens and time. Works for the planner."""

    site: Site
    batch: Batch
    joining: Joining
    cost: StepCost

    def next(self, now: float) -> tuple[Int32s, Int32s]:
        """Slots and their token counts: decodes, then prefill chunks, best tiers first."""
        batch = self.batch
        pending = batch.length - batch.computed
        decoding = np.flatnonzero(pending == 1)
        if decoding.size == batch.occupied and not self.joining.anyone(now):
            return decoding.astype(np.int32), np.ones(decoding.size, np.int32)
        budget = self._prefill_budget(decoding, np.flatnonzero(pending > 1))
        if self._let_join(budget, now):
            pending = batch.length - batch.computed
            decoding = np.flatnonzero(pending == 1)
        # A newcomer with one token to compute is a decode by now, on top of those budgeted for.
        left = min(budget, self.site.max_batched_tokens - decoding.size)
        prefilling, chunks = self._chunks(np.flatnonzero(pending > 1), left)
        return (
            np.concatenate([decoding, prefilling], dtype=np.int32),
            np.concatenate([np.ones(decoding.size, np.int32), chunks]),
        )

    def _chunks(self, prefilling: Slots, budget: int) -> tuple[Int32s, Int32s]:
        """Whose prompt goes on, and by how much: the best first, until the budget is spent.

        A block of it belongs to whoever joined first: a worse tier that is in the batch moves.
        """
        batch = self.batch
        best_first = prefilling[np.argsort(batch.order[prefilling])]
        pending = (batch.length - batch.computed)[best_first]
        oldest = int(np.argmin(batch.order[best_first] & JOINED_MASK)) if pending.size else 0
        owed = min(self.site.block_size, budget, int(pending[oldest])) if pending.size else 0
        pending[oldest : oldest + 1] -= owed
        counts = np.clip(budget - owed - np.cumsum(pending) + pending, 0, pending)
        counts[oldest : oldest + 1] += owed
        return best_first[counts > 0].astype(np.int32), counts[counts > 0].astype(np.int32)

    def _let_join(self, budget: int, now: float) -> bool:
        """Whoever is next joins as long as the budget reaches beyond those who go before it."""
        if not self.joining.anyone(now):
            return False
        ahead = self._prefill_by_tier()
        joined = False
        while (newcomer := self.joining.next(now, ahead, budget)) is not None:
            ahead[newcomer.tier] += newcomer.length - newcomer.computed
            joined = True
        return joined

    def _prefill_budget(self, decoding: Slots, prefilling: Slots) -> int:
        """Prompt tokens that the next step may compute, at least a block."""
        batch, decodes = self.batch, decoding.size
        budget = self.site.max_batched_tokens - decodes
        target_s = self.site.inter_token_target_s
        if not decodes or not target_s:
            return budget
        start = 0
        if prefilling.size:
            start = int(batch.computed[prefilling[np.argmin(batch.order[prefilling])]])
        tokens = self.cost.prefill_tokens(
            target_s,
            decodes=decodes,
            attended_tokens=int(batch.length[decoding].sum()),
            start=start,
        )
        if tokens is None:
            return budget
        return min(budget, max(tokens, self.site.block_size))

    def _prefill_by_tier(self) -> Counter[int]:
        """Prompt tokens in the batch that are still to be computed."""
        batch = self.batch
        pending = batch.length - batch.computed
        ahead: Counter[int] = Counter()
        for slot in np.flatnonzero(pending > 1).tolist():
            ahead[int(batch.order[slot]) >> TIER_SHIFT] += int(pending[slot])
        return ahead
