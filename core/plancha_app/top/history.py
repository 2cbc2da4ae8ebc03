"""The last looks, one after the other: rates, and what plots are drawn from."""

from collections import deque
from collections.abc import Mapping

import attrs

from plancha_app.top.view import View

KEPT = 600


@attrs.frozen(kw_only=True)
class Sample:
    """Of the time between two looks; None where nothing was told."""

    output_per_s: float
    prompt_per_s: float
    first_p50_s: float | None
    first_p99_s: float | None
    inter_p50_s: float | None
    inter_p99_s: float | None


class History:
    """Grows with each look; a server that has started again starts it again."""

    def __init__(self) -> None:
        self.samples: deque[Sample] = deque(maxlen=KEPT)
        self.tenants_per_s: Mapping[str, float] = {}
        self._last: View | None = None

    def add(self, view: View) -> None:
        """A look that is no newer than the last tells nothing new."""
        last = self._last
        if last is not None and view.at_s == last.at_s:
            return
        self._last = view
        if last is None or _began_anew(last, view):
            self.samples.clear()
            self.tenants_per_s = {}
            return
        seconds = view.at_s - last.at_s
        before = {tenant.name: tenant.generated_tokens for tenant in last.tenants}
        counters, earlier = view.counters, last.counters
        most = counters.generated_tokens - earlier.generated_tokens
        # Not all tenants are told of: one that was not may have tokens from long ago.
        self.tenants_per_s = {
            each.name: min(most, max(0, each.generated_tokens - before.get(each.name, 0))) / seconds
            for each in view.tenants
        }
        first, inter = view.recent.first_token, view.recent.inter_token
        self.samples.append(
            Sample(
                output_per_s=(counters.generated_tokens - earlier.generated_tokens) / seconds,
                prompt_per_s=(counters.prompt_tokens - earlier.prompt_tokens) / seconds,
                first_p50_s=first.p50_s,
                first_p99_s=first.p99_s,
                inter_p50_s=inter.p50_s,
                inter_p99_s=inter.p99_s,
            )
        )


def _began_anew(last: View, view: View) -> bool:
    return (
        view.at_s < last.at_s
        or view.scope != last.scope
        or view.counters.generated_tokens < last.counters.generated_tokens
        or view.counters.prompt_tokens < last.counters.prompt_tokens
    )
