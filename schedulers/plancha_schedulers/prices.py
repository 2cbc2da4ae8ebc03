"""What work costs in virtual tokens: the measure by which tenants are held even."""

import attrs

from plancha.options import at_least, between
from plancha.sequence import Sequence


@attrs.frozen(kw_only=True)
class Prices:
    """Tenants are held even in the tokens they are served, by their weights.

    A prompt's and an output's tokens are not the same work; the weights are those of the paper.
    """

    input_weight: float = attrs.field(default=1.0, validator=at_least(0))
    """What a token of a prompt costs its tenant."""

    output_weight: float = attrs.field(default=2.0, validator=at_least(0))
    """What a token of an output costs its tenant."""

    cached_factor: float = attrs.field(default=0.1, validator=between(0, 1))
    """Share of `input_weight` that a token costs which the prefix cache had: it takes memory and is
    read in every step, but is not computed."""

    def prompt(self, sequence: Sequence, cached: int) -> float:
        """Of its whole prompt, `cached` tokens of which need no computing."""
        computed = sequence.prompt_tokens - cached
        return self.input_weight * (computed + self.cached_factor * cached)

    def output(self, tokens: int) -> float:
        """Of generated tokens."""
        return self.output_weight * tokens
