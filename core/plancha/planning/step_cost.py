"""What a step costs: a straight line through the steps seen, so that the next can be kept short."""

import math

import numpy as np

from plancha.plans import Plan, StepDone

FORGETTING = 0.98
"""Weight of a step beside the one after it: about the last fifty count."""

FIRST_STEPS = 8
"""Until so many have been seen nothing is said of the next."""

NEW_SCALE, ATTENDED_SCALE = 256.0, 65536.0
START, CEILING = 1e2, 1e6


class StepCost:
    """seconds = a + b · new tokens + c · attended tokens, by recursive least squares.

    New tokens are all that a step computes; each attends to all before it in its sequence and to
    itself. Coefficients below zero, as noise gives, count as zero.
    """

    def __init__(self) -> None:
        self._weights = (0.0, 0.0, 0.0)
        self._covariance = ((START, 0.0, 0.0), (0.0, START, 0.0), (0.0, 0.0, START))
        self._seen = 0
        self.step_s = 0.0  # a step's mean of late; 0 before the first

    def observe(self, new_tokens: int, attended_tokens: float, seconds: float) -> None:
        """One step's truth. Token counts are scaled so that the three are of one size.

        In plain floats: for three numbers NumPy's calls cost several times the arithmetic.
        """
        (p00, p01, p02), (_, p11, p12), (_, _, p22) = self._covariance
        w0, w1, w2 = self._weights
        new, attended = new_tokens / NEW_SCALE, attended_tokens / ATTENDED_SCALE
        px0 = p00 + p01 * new + p02 * attended
        px1 = p01 + p11 * new + p12 * attended
        px2 = p02 + p12 * new + p22 * attended
        # What steady decoding says nothing about must not be forgotten without end.
        forgetting = FORGETTING if max(p00, p11, p22) < CEILING else 1.0
        scale = 1.0 / (forgetting + px0 + new * px1 + attended * px2)
        gain = scale * (seconds - (w0 + w1 * new + w2 * attended))
        self._weights = (w0 + gain * px0, w1 + gain * px1, w2 + gain * px2)
        p01 = (p01 - scale * px0 * px1) / forgetting
        p02 = (p02 - scale * px0 * px2) / forgetting
        p12 = (p12 - scale * px1 * px2) / forgetting
        self._covariance = (
            ((p00 - scale * px0 * px0) / forgetting, p01, p02),
            (p01, (p11 - scale * px1 * px1) / forgetting, p12),
            (p02, p12, (p22 - scale * px2 * px2) / forgetting),
        )
        self._seen += 1
        self.step_s += (seconds - self.step_s) * max(1 / self._seen, 1 - FORGETTING)

    def observe_step(self, plan: Plan, done: StepDone) -> None:
        """As `observe`, less the copies; a step that took no time teaches nothing."""
        seconds = done.seconds - done.timings.get("copies", 0.0)
        if seconds > 0:
            counts = plan.counts.astype(np.int64)
            new = int(counts.sum())
            # Each row's tokens look back at starts + 1 to starts + count: their sum.
            attended = (int(counts @ (2 * plan.starts + plan.counts)) + new) / 2
            self.observe(new, attended, seconds)

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
