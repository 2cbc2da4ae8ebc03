"""Requests that a gateway ends by itself, since their worker should have long ago and did not."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import anyio
import attrs
import structlog

from plancha.failure import RequestFailed, timed_out
from plancha.streams.generation import Generation

log = structlog.get_logger()

INTERVAL_S = 0.5
GRACE_LOOKS = 4
GRACE_S = INTERVAL_S * GRACE_LOOKS
"""After a request's deadline: a worker that is well ends it first, and knows what it cost."""


@contextmanager
def patience(timeout_s: float | None) -> Iterator[None]:
    """For a request on its way to its worker, which may take nothing any more.

    Raises `RequestFailed` as the worker would, when `timeout_s` and the grace are over.
    """
    scope = anyio.CancelScope()
    if timeout_s is not None:
        scope.deadline = anyio.current_time() + timeout_s + GRACE_S
    with scope:
        yield
    if scope.cancelled_caught:
        assert timeout_s is not None
        raise RequestFailed(timed_out(timeout_s))


@attrs.define(eq=False)
class _Watched:
    generation: Generation
    timeout_s: float
    deadline_s: float
    late_looks: int = 0


class Overdue:
    """Watches the `running` requests that have a deadline of their own; times are monotonic.

    The grace is counted in looks, so that a gateway that stood still itself first hears what its
    worker said meanwhile.
    """

    def __init__(self, running: Mapping[str, Generation]) -> None:
        self._running = running
        self._watched: dict[str, _Watched] = {}

    def watch(self, generation: Generation, timeout_s: float | None, now: float) -> None:
        """It was submitted `now`, and has `timeout_s` from then on; None: as long as it takes."""
        if timeout_s is not None:
            self._watched[generation.record.id] = _Watched(generation, timeout_s, now + timeout_s)

    def look(self, now: float) -> None:
        """End what is overdue, as the worker does, and tell the worker."""
        for request_id, watched in list(self._watched.items()):
            generation = watched.generation
            if request_id not in self._running or generation.ended:
                del self._watched[request_id]
            elif now >= watched.deadline_s:
                watched.late_looks += 1
                if watched.late_looks > GRACE_LOOKS:
                    del self._watched[request_id]
                    log.warning("request_overdue", request=request_id)
                    generation.fail(timed_out(watched.timeout_s))
                    generation.cancel()

    async def looking(self) -> None:
        """Task: until cancelled."""
        while True:
            await anyio.sleep(INTERVAL_S)
            self.look(anyio.current_time())
