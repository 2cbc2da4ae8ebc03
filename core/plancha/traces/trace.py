"""What became of one sequence so far: when it moved, and why it waited in between.

Nothing is written down for a sequence that runs, and for one that waits at most a word each time
the planner looks at it; what it is told again and again is one entry.
"""

from collections.abc import Mapping
from typing import Literal

import attrs

MOST_ENTRIES = 64
"""Of one sequence; of more the middle is summed up."""

Reason = str
"""Why a sequence does not run; in `REASONS`, or a scheduler plugin's own word."""

REASONS = (
    "next",  # it is the next of the line, and the coming step decides
    "budget",  # prompts that go before it use up the step's tokens or time
    "blocks",  # KV blocks are short
    "watermark",  # there would be blocks, were not some kept free for those who run
    "slots",  # the batch is full
    "tenant_limit",  # its tenant has as many in the batch as it may
    "share",  # by fair shares it is another tenant's turn
    "tier",  # a better tier goes first
    "order",  # others stand before it in the line
    "sibling",  # the first output of its prompt is not computed yet, whose blocks it will share
    "paused",  # its reader lags
    "engine",  # a step failed
)

Move = Literal["joined", "resumed", "preempted", "evicted", "ended"]


@attrs.define(eq=False, kw_only=True)
class Wait:
    """A stretch of time for which one reason held, as the planner last said. Monotonic clock.

    `needs_blocks` and `available_blocks` are of the latest step in which blocks were the reason.
    """

    reason: Reason
    from_s: float
    to_s: float | None = None  # None: it goes on
    steps: int = 0  # in which the planner looked at the sequence and passed it over
    latest_step: int = -1
    needs_blocks: int | None = None
    available_blocks: int | None = None
    overtaken: int = 0  # so many joined from behind it


@attrs.frozen(eq=False)
class Moment:
    """Something that happened to the sequence."""

    what: Move
    at_s: float
    details: Mapping[str, object]


@attrs.define(eq=False)
class Omitted:
    """What the middle held before it was given up."""

    from_s: float
    to_s: float
    entries: int = 0
    steps: int = 0


@attrs.define(eq=False)
class Trace:
    """One sequence's. Owned by the scheduling task, as the sequence is."""

    wait: Wait | None = attrs.field(default=None, init=False)  # now
    omitted: Omitted | None = attrs.field(default=None, init=False)
    _entries: list[Wait | Moment] = attrs.field(factory=list, init=False)

    def waits(self, reason: Reason, now: float) -> Wait:
        """From now on for this reason, unless it does so already."""
        wait = self.wait
        if wait is None or wait.reason != reason:
            self._close(now)
            wait = self.wait = Wait(reason=reason, from_s=now)
        return wait

    def passed_over(
        self,
        reason: Reason,
        step: int,
        now: float,
        needs_blocks: int | None = None,
        available_blocks: int | None = None,
    ) -> None:
        """The planner looked at it for `step` and did not take it. Twice for one step is once."""
        wait = self.wait
        if wait is None or wait.reason != reason:
            wait = self.waits(reason, now)
        if wait.latest_step != step:
            wait.latest_step = step
            wait.steps += 1
        wait.needs_blocks, wait.available_blocks = needs_blocks, available_blocks

    def overtaken(self) -> None:
        """Somebody behind it joined."""
        if self.wait is not None:
            self.wait.overtaken += 1

    def moved(
        self, what: Move, now: float, *, then: Reason | None = None, **details: object
    ) -> None:
        """What it waited for is over, and it waits for `then`, or for nothing."""
        self._close(now)
        self._add(Moment(what, now, details))
        if then is not None:
            self.waits(then, now)

    def entries(self) -> tuple[list[Wait | Moment], list[Wait | Moment]]:
        """The first ones and the latest ones; what was `omitted` lies between."""
        half = MOST_ENTRIES // 2
        entries = self._entries if self.wait is None else [*self._entries, self.wait]
        return entries[:half], entries[half:]

    def _close(self, now: float) -> None:
        wait, self.wait = self.wait, None
        if wait is not None and (wait.steps or now > wait.from_s):  # else it was only a guess
            wait.to_s = now
            self._add(wait)

    def _add(self, entry: Wait | Moment) -> None:
        self._entries.append(entry)
        if len(self._entries) > MOST_ENTRIES:
            self._omit(self._entries.pop(MOST_ENTRIES // 2))

    def _omit(self, entry: Wait | Moment) -> None:
        from_s = entry.from_s if isinstance(entry, Wait) else entry.at_s
        omitted = self.omitted = self.omitted or Omitted(from_s, from_s)
        omitted.entries += 1
        if isinstance(entry, Wait):
            omitted.steps += entry.steps
            omitted.to_s = entry.to_s or from_s
        else:
            omitted.to_s = from_s
