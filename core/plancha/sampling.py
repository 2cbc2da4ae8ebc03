"""How a sequence's next token is chosen: the parameters, checked once where they enter."""

import math
from collections.abc import Mapping

import attrs

from plancha.failure import invalid

RANGES: Mapping[str, tuple[float, float]] = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "min_p": (0, 1),
    "frequency_penalty": (-2, 2),
    "presence_penalty": (-2, 2),
    "repetition_penalty": (0.01, 100),
}
"""Lowest and highest of each number."""

MOST_BIAS = 100
"""Of a logit, up or down."""


@attrs.frozen(kw_only=True)
class Sampling:
    """Sampling parameters of one request, valid by construction.

    The names are the API's, so an error's `param` is the field the caller wrote. Temperatures
    below `GREEDY_BELOW` mean greedy. `top_k` 0 or -1 and `top_p` 1 are off; `top_p` 0 keeps only
    the best token. Penalties: repetition as in CTRL (Keskar et al. 2019), over prompt and output;
    frequency and presence as in OpenAI's API, over the output alone. `min_p` keeps tokens of at
    least that share of the best token's probability (Nguyen et al. 2024).

    Raises `RequestFailed` (kind "invalid") naming the first parameter out of range.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    ignore_eos: bool = False

    def __attrs_post_init__(self) -> None:
        for param, (low, high) in RANGES.items():
            _within(param, getattr(self, param), low, high)
        if self.top_k < -1:
            raise invalid("top_k", f"top_k is {self.top_k}; it must be -1 or 0 (off), or positive.")
        if self.min_tokens < 0:
            raise invalid("min_tokens", f"min_tokens is {self.min_tokens}; it must be 0 or more.")
        if self.seed is not None and not -(2**63) <= self.seed < 2**64:
            raise invalid("seed", f"seed is {self.seed}; it must fit in 64 bits.")
        for _, bias in self.logit_bias:
            _within("logit_bias", bias, -MOST_BIAS, MOST_BIAS)

    @property
    def greedy(self) -> bool:
        """Whether the best token is always taken. A tiny temperature counts: it would overflow."""
        return self.temperature < GREEDY_BELOW or self.top_k == 1 or self.top_p == 0


GREEDY_BELOW = 1e-5


def _within(param: str, value: float, low: float, high: float) -> None:
    if not (math.isfinite(value) and low <= value <= high):
        raise invalid(param, f"{param} is {value}; it must be from {low:g} to {high:g}.")
