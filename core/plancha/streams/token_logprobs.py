"""Log-probabilities of single tokens, from the columns that the worker sends."""

import attrs
import numpy as np

from plancha.messages import Int32s, Logprobs

LEAST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON has no number for."""


@attrs.frozen
class TokenLogprob:
    """One token's log-probability, and the best tokens in its place with theirs, best first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


def token_logprobs(tokens: Int32s, logprobs: Logprobs, alternatives: int) -> list[TokenLogprob]:
    """Columns as one object a token, floored at `LEAST_LOGPROB`."""
    chosen = np.maximum(np.nan_to_num(logprobs.chosen, nan=LEAST_LOGPROB), LEAST_LOGPROB)
    top = np.maximum(np.nan_to_num(logprobs.top, nan=LEAST_LOGPROB), LEAST_LOGPROB)
    return [
        TokenLogprob(token, logprob, tuple(zip(ids, best, strict=True)))
        for token, logprob, ids, best in zip(
            tokens.tolist(),
            chosen.tolist(),
            logprobs.top_ids[:, :alternatives].tolist(),
            top[:, :alternatives].tolist(),
            strict=True,
        )
    ]
