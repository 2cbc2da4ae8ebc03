"""From logits to the next tokens: one call a step, whatever each row asked for.

In this order, which is vLLM's up to the temperature and Hugging Face's from there: logit bias,
repetition penalty, frequency and presence penalty, stop ids masked while `min_tokens` are owed,
all masked that a grammar does not let through, temperature, top-k, top-p of what is left, min-p.
Output token i of a sequence is drawn with random number i of its seed, so neither the batch around
it nor a replay after a preemption changes it.
"""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from plancha.messages import Bools, Int32s, Int64s
from plancha.plans import Join
from plancha_engine.arrays import Float32s, Float64s, UInt64s
from plancha_engine.kernels.sampling import NOT_FINITE, draw, penalise

MASKED = np.float32(-1e30)
"""A logit that no other comes near, finite so that it is not taken for an error."""

NO_IDS: Int64s = np.zeros(0, np.int64)
NO_BIAS: tuple[Int64s, Float32s] = NO_IDS, np.zeros(0, np.float32)


class Grammars(Protocol):
    """What some outputs must follow. Rows of other slots are left as they are, at no cost."""

    def join(self, join: Join) -> None:
        """Follow the sequence in `join.slot` from now on, its known output first."""
        ...

    def leave(self, slots: Int32s) -> None:
        """These slots are empty now."""
        ...

    def reset(self) -> None:
        """Every slot is empty now."""
        ...

    def mask(self, logits: Float32s, slots: Int32s) -> None:
        """Mask in row r what may not come next in `slots[r]`; NaN where nothing may."""
        ...

    def advance(self, slots: Int32s, tokens: Int32s) -> None:
        """`tokens[r]` was drawn for `slots[r]`, or `NOT_FINITE`."""
        ...


class Sampler:
    """The sampling parameters of every slot, in columns, and the draw itself.

    `grammars`: None where nobody can ask for any.
    """

    def __init__(
        self, max_sequences: int, vocabulary: int, grammars: Grammars | None = None
    ) -> None:
        def column(dtype: type[np.generic]) -> npt.NDArray[Any]:
            return np.zeros(max_sequences, dtype)

        self.vocabulary = vocabulary
        self._grammars = grammars
        self._greedy: Bools = column(np.bool_)
        self._temperature: Float32s = column(np.float32)
        self._top_k: Int32s = column(np.int32)
        self._top_p: Float64s = column(np.float64)
        self._min_p: Float32s = column(np.float32)
        self._seed: UInt64s = column(np.uint64)
        self._penalised: Bools = column(np.bool_)
        self._repetition: Float32s = column(np.float32)
        self._frequency: Float32s = column(np.float32)
        self._presence: Float32s = column(np.float32)
        self._prompt_tokens: Int32s = column(np.int32)
        self._owed_until: Int32s = column(np.int32)  # length from which a sequence may stop
        self._biased: Bools = column(np.bool_)
        self._bias: list[tuple[Int64s, Float32s]] = [NO_BIAS] * max_sequences
        self._stop_ids: list[Int64s] = [NO_IDS] * max_sequences

    def join(self, join: Join) -> None:
        """Sample for this sequence in `join.slot` from now on."""
        slot, sampling = join.slot, join.sampling
        self._greedy[slot] = sampling.greedy
        self._temperature[slot] = sampling.temperature
        self._top_k[slot] = sampling.top_k
        self._top_p[slot] = sampling.top_p
        self._min_p[slot] = sampling.min_p
        self._seed[slot] = join.seed % 2**64
        penalties = (
            sampling.repetition_penalty,
            sampling.frequency_penalty,
            sampling.presence_penalty,
        )
        self._penalised[slot] = penalties != (1, 0, 0)
        self._repetition[slot], self._frequency[slot], self._presence[slot] = penalties
        self._prompt_tokens[slot] = join.prompt_tokens
        self._owed_until[slot] = join.prompt_tokens + sampling.min_tokens
        self._biased[slot] = bool(sampling.logit_bias)
        ids = np.array([token for token, _ in sampling.logit_bias], np.int64)
        bias = np.array([bias for _, bias in sampling.logit_bias], np.float32)
        self._bias[slot] = ids, bias
        self._stop_ids[slot] = np.array(join.stop_ids, np.int64)
        if self._grammars is not None:
            self._grammars.join(join)

    def leave(self, slots: Int32s) -> None:
        """These slots are empty now; what they asked for need not be kept."""
        if self._grammars is not None:
            self._grammars.leave(slots)

    def sample(
        self, logits: Float32s, slots: Int32s, lengths: Int32s, token_ids: Int32s
    ) -> tuple[Int32s, Bools]:
        """The next token of each slot, and which rows failed: those with a logit that is no finite
        number, or whose grammar lets nothing through.

        `logits` float32 `[rows, at least vocabulary]`, overwritten; row r belongs to `slots[r]`,
        of which `token_ids[slots[r], :lengths[r]]` are known.
        """
        self.adjust(logits, slots, lengths, token_ids)
        if self._grammars is not None:
            self._grammars.mask(logits, slots)
        tokens = np.empty(slots.size, np.int32)
        draw(
            logits,
            self.vocabulary,
            self._greedy[slots],
            self._temperature[slots],
            self._top_k[slots],
            self._top_p[slots],
            self._min_p[slots],
            self._seed[slots],
            (lengths - self._prompt_tokens[slots]).astype(np.uint64),
            tokens,
        )
        if self._grammars is not None:
            self._grammars.advance(slots, tokens)
        return tokens, tokens == NOT_FINITE

    def adjust(self, logits: Float32s, slots: Int32s, lengths: Int32s, token_ids: Int32s) -> None:
        """Bias, penalties and masks, for the few rows that have any."""
        for row in np.flatnonzero(self._biased[slots]).tolist():
            ids, bias = self._bias[slots[row]]
            logits[row, ids] += bias
        rows = np.flatnonzero(self._penalised[slots])
        if rows.size:
            some = slots[rows]
            penalise(
                logits,
                rows,
                token_ids,
                some,
                self._prompt_tokens[some],
                lengths[rows],
                self._repetition[some],
                self._frequency[some],
                self._presence[some],
            )
        for row in np.flatnonzero(lengths < self._owed_until[slots]).tolist():
            logits[row, self._stop_ids[slots[row]]] = MASKED
