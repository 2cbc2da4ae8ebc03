"""A generation's way to its socket: from the worker's frame to the write, without a task."""

from collections.abc import Callable
from typing import Protocol

import structlog

from plancha.failure import Failure, RequestFailed, engine_error
from plancha.generation import Generation
from plancha.outbox import Delta
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

    def token(self, token: int, text: str) -> bytes:
        """The next token of the only output, with nothing to report of its probability."""
        ...

    def deltas(self, deltas: list[Delta]) -> bytes:
        """Tokens came, or streams ended."""
        ...


class Delivery:
    """Sends what `events` makes of a generation's deltas, whenever there are some.

    While the outlet is full the ids stay in their outboxes, and from `most_pending` of them on the
    stream is paused; `on_full` is told, so that somebody calls `push` when there is room again.
    Then whatever waits is rendered together. `on_end` is told when it is `over`; what is to be said
    last is its owner's to say.
    """

    def __init__(
        self,
        generation: Generation,
        outlet: Outlet,
        events: Events,
        *,
        most_pending: int,
        on_full: Callable[[], None],
        on_end: Callable[[], None],
    ) -> None:
        self.over = False
        self.failure: Failure | None = None  # why it broke off
        self._generation = generation
        self._outlet = outlet
        self._events = events
        self._most_pending = most_pending
        self._on_full = on_full
        self._on_end = on_end

    def begin(self, first: list[Delta]) -> None:
        """Send `first`, which were already taken, and from now on whatever comes."""
        self._generation.attach(self.push)
        self._push(first)

    def push(self) -> None:
        """Send what has come, as far as the outlet takes it. Raises nothing."""
        self._push([])

    def stop(self, failure: Failure) -> None:
        """Break it off, unless it is over."""
        if not self.over:
            self._generation.abort(failure)
            self._end(failure)

    def _push(self, first: list[Delta]) -> None:
        try:
            if first:
                self._send(self._events.deltas(uncancelled(first)))
            if not self.over:
                self._send_more()
        except RequestFailed as failed:
            self._end(failed.failure)
        except ConnectionError:
            self._end(CANCELLED)
        except Exception:
            log.exception("stream_failed", request=self._generation.record.id)
            self.stop(engine_error())

    def _send_more(self) -> None:
        generation, events = self._generation, self._events
        while generation.more:
            if self._outlet.full:
                generation.hold(self._most_pending)
                return self._on_full()
            token = generation.take_token()
            if token is not None:
                return self._send(events.token(*token))
            deltas = generation.take(TOKENS_AT_ONCE)
            if deltas:
                self._send(events.deltas(uncancelled(deltas)))
            elif generation.ended:
                return self._end(None)
        return None

    def _send(self, data: bytes) -> None:
        if data:
            self._outlet.send(data)

    def _end(self, failure: Failure | None) -> None:
        self.over, self.failure = True, failure
        self._on_end()
