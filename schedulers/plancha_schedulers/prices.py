"""What work costs in virtual tokens: the measure by which tenants are held even."""

import attrs

from plancha.options import at_least, between
from plancha.sequence import Sequence


@attrs.frozen(kw_only=True)
class Prices:
    """A prompt's and an output's tokens are not the same work; the defaults are those of the paper.

    A token of the prompt whose K and V the prefix cache had costs `cached_factor` of another one:
    it takes memory and is read in every step, but is not computed.
    """

    input_weight: float = attrs.field(default=1.0, validator=at_least(0))
    output_weight: float = attrs.field(default=2.0, validator=at_least(0))
    cached_factor: float = attrs.field(default=0.1, validator=between(0, 1))

    def prompt(self, sequence: Sequence, cached: int) -> float:
        """Of its whole prompt, `cached` tokens of which need no computing."""
        computed = sequence.prompt_tokens - cached
        return self.input_weight * (computed + self.cached_factor * cached)

    def output(self, tokens: int) -> float:
        """Of generated tokens."""
        return self.output_weight * tokens
