"""Log-probabilities by the model's own distribution: before bias, penalties and temperature."""

from collections.abc import Iterator

import attrs
import numpy as np

from plancha.messages import (
    Bools,
    Int32s,
    Int64s,
    Logprobs,
    PromptLogprobs,
)
from plancha.plans import Join, Plan
from plancha_engine.arrays import Float32s
from plancha_engine.batch_tables import Batch

NOT_ASKED = -1

PROMPT_ROWS = 128
"""Prompt positions scored at a time: their logits, as wide as the vocabulary, are in memory."""


@attrs.frozen(eq=False)
class Stretch:
    """Successive positions of a scored prompt: `rows` of the step tell of those from `start` on."""

    slot: int
    start: int
    rows: Int64s


class LogprobReader:
    """Which slots asked for how much, and the reading of it from a step's logits."""

    def __init__(self, max_sequences: int, vocabulary: int) -> None:
        self._vocabulary = vocabulary
        self._alternatives: Int32s = np.full(max_sequences, NOT_ASKED, np.int32)
        self._scores_prompt: Bools = np.zeros(max_sequences, np.bool_)
        self._prompt_tokens: Int32s = np.zeros(max_sequences, np.int32)

    def join(self, join: Join) -> None:
        """Read for this sequence in `join.slot` from now on, or do not."""
        self._alternatives[join.slot] = NOT_ASKED if join.logprobs is None else join.logprobs
        self._scores_prompt[join.slot] = join.prompt_logprobs
        self._prompt_tokens[join.slot] = join.prompt_tokens

    def copy(self, logits: Float32s, slots: Int32s) -> Float32s | None:
        """The logits of rows that asked, before the sampler changes them; None: nobody did."""
        asked = self._alternatives[slots] != NOT_ASKED
        return logits[asked, : self._vocabulary].copy() if asked.any() else None

    def read(self, copied: Float32s | None, slots: Int32s, tokens: Int32s) -> Logprobs | None:
        """A row for each of `slots`, whose next tokens are `tokens`; filled where it was asked."""
        if copied is None:
            return None
        asked = self._alternatives[slots] != NOT_ASKED
        width = int(self._alternatives[slots].max())
        some = _logprobs(copied, tokens[asked], width)
        whole = Logprobs(
            np.zeros(slots.size, np.float32),
            np.zeros((slots.size, width), np.int32),
            np.zeros((slots.size, width), np.float32),
        )
        whole.chosen[asked], whole.top_ids[asked], whole.top[asked] = (
            some.chosen,
            some.top_ids,
            some.top,
        )
        return whole

    def prompt_stretches(self, batch: Batch, plan: Plan) -> Iterator[Stretch]:
        """What the step computed of scored prompts, in pieces of no more than `PROMPT_ROWS`."""
        for row in np.flatnonzero(self._scores_prompt[plan.slots]).tolist():
            slot, start = int(plan.slots[row]), int(plan.starts[row])
            end = min(start + int(plan.counts[row]), int(self._prompt_tokens[slot]) - 1)
            first = int(batch.first[row]) - start
            for at in range(start, end, PROMPT_ROWS):
                until = min(end, at + PROMPT_ROWS)
                yield Stretch(slot, at + 1, np.arange(first + at, first + until, dtype=np.int64))

    def read_prompt(self, logits: Float32s, stretch: Stretch, token_ids: Int32s) -> PromptLogprobs:
        """`logits` are those of the stretch's rows."""
        slot, start = stretch.slot, stretch.start
        following = token_ids[slot, start : start + stretch.rows.size]
        width = max(0, int(self._alternatives[slot]))
        some = _logprobs(logits[:, : self._vocabulary], following, width)
        return PromptLogprobs(slot, start, some)


def _logprobs(logits: Float32s, tokens: Int32s, width: int) -> Logprobs:
    """Of `tokens[i]`, and of the `width` best, under the softmax of `logits[i]`."""
    best = logits.max(axis=1, keepdims=True)
    total = np.log(np.exp(logits - best, dtype=np.float64).sum(axis=1, keepdims=True)) + best
    chosen = np.take_along_axis(logits, tokens[:, None].astype(np.int64), axis=1) - total
    if width == 0:
        none = np.empty((tokens.size, 0), np.float32)
        return Logprobs(chosen[:, 0].astype(np.float32), none.astype(np.int32), none)
    some = np.argpartition(logits, -width, axis=1)[:, -width:]
    order = np.argsort(-np.take_along_axis(logits, some, axis=1), axis=1, kind="stable")
    top_ids = np.take_along_axis(some, order, axis=1)
    top = np.take_along_axis(logits, top_ids, axis=1) - total
    return Logprobs(
        chosen[:, 0].astype(np.float32), top_ids.astype(np.int32), top.astype(np.float32)
    )
