"""What a step costs: a straight line through the steps seen, so that the next can be kept short."""

import math

FORGETTING = 0.98
"""Weight of a step beside the one after it: about the last fifty count."""

FIRST_STEPS = 8
"""Until so many have been seen nothing is said of the next."""

NEW_SCALE, ATTENDED_SCALE = 256.0, 65536.0
START, CEILING = 1e2, 1e6
THREE = range(3)


class StepCost:
    """seconds = a + b · new tokens + c · attended tokens, by recursive least squares.

    New tokens are all that a step computes; each attends to all before it in its sequence and to
    itself. Coefficients below zero, as noise gives, count as zero.
    """

    def __init__(self) -> None:
        self._weights = [0.0, 0.0, 0.0]
        self._covariance = [[START, 0.0, 0.0], [0.0, START, 0.0], [0.0, 0.0, START]]
        self._seen = 0

    def observe(self, new_tokens: int, attended_tokens: float, seconds: float) -> None:
        """One step's truth. Token counts are scaled so that the three are of one size.

        In plain floats: for three numbers NumPy's calls cost several times the arithmetic.
        """
        p, w = self._covariance, self._weights
        x = (1.0, new_tokens / NEW_SCALE, attended_tokens / ATTENDED_SCALE)
        px = [row[0] * x[0] + row[1] * x[1] + row[2] * x[2] for row in p]
        # What steady decoding says nothing about must not be forgotten without end.
        forgetting = FORGETTING if max(p[i][i] for i in THREE) < CEILING else 1.0
        scale = 1.0 / (forgetting + x[0] * px[0] + x[1] * px[1] + x[2] * px[2])
        error = seconds - (w[0] * x[0] + w[1] * x[1] + w[2] * x[2])
        self._weights = [w[i] + scale * error * px[i] for i in THREE]
        self._covariance = [
            [(p[i][j] - scale * px[i] * px[j]) / forgetting for j in THREE] for i in THREE
        ]
        self._seen += 1

    @property
    def known(self) -> bool:
        """Whether enough steps were seen to say anything."""
        return self._seen >= FIRST_STEPS

    @property
    def per_step_s(self) -> float:
        """a: what every step costs."""
        return max(0.0, self._weights[0])

    @property
    def per_new_token_s(self) -> float:
        """b: what each computed token adds."""
        return max(0.0, self._weights[1]) / NEW_SCALE

    @property
    def per_attended_token_s(self) -> float:
        """c: what each token that is looked back at adds."""
        return max(0.0, self._weights[2]) / ATTENDED_SCALE

    def prefill_tokens(
        self, target_s: float, *, decodes: int, attended_tokens: int, start: int
    ) -> int | None:
        """Prefill tokens that fit into `target_s`; None when nothing is known yet.

        Beside them go `decodes` that look back at `attended_tokens`; the prompt that is computed
        goes on from its position `start`, so each of its tokens looks back at that many and more.
        """
        if not self.known or self.per_new_token_s == 0:
            return None
        b, c = self.per_new_token_s, self.per_attended_token_s
        left_s = target_s - self.per_step_s - b * decodes - c * attended_tokens
        if left_s <= 0:
            return 0
        each_s = b + c * start  # n tokens take each_s · n + c · n² / 2
        return int(2 * left_s / (each_s + math.sqrt(each_s**2 + 2 * c * left_s)))

    def recompute_s(self, tokens: int) -> float:
        """What prefilling `tokens` again adds to the steps that do it."""
        attended = tokens * tokens / 2
        return self.per_new_token_s * tokens + self.per_attended_token_s * attended
