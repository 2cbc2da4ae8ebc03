"""What a run amounts to: throughput, and percentiles of what clients felt."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from plancha_app.bench.client import Outcome

PERCENTILES = (50, 90, 99)


def summarise(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Figures of a run, ready for JSON. Times in seconds; failed requests only count as errors."""
    good = [outcome for outcome in outcomes if outcome.error is None]
    first = min(outcome.sent_s for outcome in outcomes)
    duration_s = max(1e-9, *(outcome.ended_s - first for outcome in outcomes))
    prompt_tokens = sum(outcome.prompt_tokens for outcome in good)
    output_tokens = sum(outcome.output_tokens for outcome in good)
    return {
        "requests": len(outcomes),
        "failed": len(outcomes) - len(good),
        "errors": dict(Counter(outcome.error for outcome in outcomes if outcome.error is not None)),
        "duration_s": round(duration_s, 4),
        "prompt_tokens": prompt_tokens,
        "output_tokens": output_tokens,
        "output_tokens_per_s": round(output_tokens / duration_s, 2),
        "requests_per_s": round(len(good) / duration_s, 3),
        "ttft_s": spread([outcome.ttft_s for outcome in good if outcome.ttft_s is not None]),
        "inter_token_s": spread([gap for outcome in good for gap in outcome.gaps_s]),
        "latency_s": spread([outcome.latency_s for outcome in good]),
    }


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """Mean and percentiles, linear between the neighbours; None where there are no values."""
    if not values:
        return {"mean": None, **{f"p{percent}": None for percent in PERCENTILES}}
    points = np.percentile(values, PERCENTILES)
    named = zip((f"p{percent}" for percent in PERCENTILES), points.tolist(), strict=True)
    return {
        "mean": round(float(np.mean(values)), 5),
        **{name: round(value, 5) for name, value in named},
    }
