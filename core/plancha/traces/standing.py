"""Why a sequence that waits is not looked at: asked when it lines up and when somebody wonders.

The planner looks at the first of the line, and behind it as far as it may pass those that do not
fit. What keeps all others waiting is the order itself, which the scheduler plugin may explain.
"""

import structlog

from plancha.contracts import Explain, Scheduler, Site
from plancha.planning.batch import Batch
from plancha.sequence import Sequence
from plancha.traces.trace import Reason

log = structlog.get_logger()


class Standing:
    """Changes nothing. A scheduler that cannot say why, or fails to, leaves it at "order"."""

    def __init__(self, site: Site, batch: Batch, scheduler: Scheduler) -> None:
        self._site = site
        self._batch = batch
        self._why: Explain | None = getattr(scheduler, "why", None)

    def reason(self, sequence: Sequence) -> Reason:
        """Of one that waits, and not for its prompt's first output."""
        if sequence.paused:
            return "paused"
        limit = self._site.tenant(sequence.tenant).max_running
        if limit is not None and self._batch.running_of(sequence.tenant) >= limit:
            return "tenant_limit"
        if self._why is None:
            return "order"
        try:
            return self._why(sequence) or "next"
        except Exception:
            log.exception("scheduler_why_failed", stream=sequence.stream)
            return "order"
