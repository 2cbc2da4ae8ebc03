"""A generation's way to its socket: from the worker's frame to the write, without a task."""

from collections.abc import Callable, Sequence
from typing import Protocol

import attrs
import structlog

from plancha.failure import Failure, RequestFailed, engine_error
from plancha.streams.generation import Generation
from plancha.streams.outbox import Delta
from plancha_transports.answers import uncancelled
from plancha_transports.failures import CANCELLED

log = structlog.get_logger()

TOKENS_AT_ONCE = 64
"""Of one output, when a client that lagged takes more: bounds what is written past `full`."""


class Outlet(Protocol):
    """Where a delivery goes."""

    @property
    def full(self) -> bool:
        """Nothing more should be sent for now."""
        ...

    def send(self, data: bytes) -> None:
        """Send without waiting. Raises `ConnectionError` when the client is gone."""
        ...


class Events(Protocol):
    """One door's wording of what comes; b"" when nothing is to be told."""

    def tokens(self, tokens: Sequence[int], texts: Sequence[str]) -> bytes:
        """The next of the only output, with nothing to report of their probability."""
        ...

    def deltas(self, deltas: list[Delta]) -> bytes:
        """Tokens came, or streams ended."""
        ...


@attrs.define(eq=False, kw_only=True)
class Delivery:
    """Sends what `events` makes of a generation's deltas, whenever there are some.

    While the outlet is full the ids stay in their outboxes, and from `most_pending` of them on the
    stream is paused; `on_full` is told, so that somebody calls `push` when there is room again.
    Then whatever waits is rendered together. `on_end` is told when it is `over`; what is to be said
    last is its owner's to say.
    """

    generation: Generation
    outlet: Outlet
    events: Events
    most_pending: int
    on_full: Callable[[], None]
    on_end: Callable[[], None]
    over: bool = attrs.field(default=False, init=False)
    failure: Failure | None = attrs.field(default=None, init=False)  # why it broke off

    def begin(self) -> None:
        """From now on send whatever comes, and what came."""
        self.generation.attach(self.push)
        self.push()

    def push(self) -> None:
        """Send what has come, as far as the outlet takes it. Raises nothing."""
        generation = self.generation
        try:
            while generation.more and not self.over:
                if self.outlet.full:
                    generation.hold(self.most_pending)
                    self.on_full()
                    return
                plain = generation.take_plain(TOKENS_AT_ONCE)
                data = self.events.tokens(*plain) if plain is not None else self._next()
                if data:
                    self.outlet.send(data)
        except RequestFailed as failed:
            self._end(failed.failure)
        except ConnectionError:
            self._end(CANCELLED)
        except Exception:
            log.exception("stream_failed", request=generation.record.id)
            self.stop(engine_error())

    def stop(self, failure: Failure) -> None:
        """Break it off, unless it is over."""
        if not self.over:
            self.generation.abort(failure)
            self._end(failure)

    def _next(self) -> bytes:
        deltas = self.generation.take(TOKENS_AT_ONCE)
        if deltas:
            return self.events.deltas(uncancelled(deltas))
        if self.generation.ended:
            self._end(None)
        return b""

    def _end(self, failure: Failure | None) -> None:
        self.over, self.failure = True, failure
        self.on_end()
