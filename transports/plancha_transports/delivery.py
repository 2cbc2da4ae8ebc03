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

    def full(self) -> bool:
        """Nothing more should be sent for now."""
        ...

    def frame(self, data: bytes) -> bytes:
        """What is to be written for `data`."""
        ...

    def write(self, framed: bytes) -> None:
        """Send without waiting. Raises `ConnectionError` when the client is gone."""
        ...


class Events(Protocol):
    """One door's wording of what comes; b"" when nothing is to be told."""

    def token(self, token: int, text: str) -> bytes:
        """The next of the only output, with nothing to report of its probability."""
        ...

    def tokens(self, tokens: Sequence[int], texts: Sequence[str]) -> bytes:
        """As many `token`s."""
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
    _framed: bytes = attrs.field(default=b"", init=False)  # rendered, and not yet sent
    over: bool = attrs.field(default=False, init=False)
    failure: Failure | None = attrs.field(default=None, init=False)  # why it broke off

    def begin(self) -> None:
        """From now on send whatever comes, and what came."""
        self.generation.attach(self.render, self.push)
        self.push()

    def render(self) -> None:
        """Put what has come into words, which `push` sends; nothing while the outlet is full.

        Raises nothing.
        """
        generation, outlet = self.generation, self.outlet
        try:
            while generation.more and not self._framed and not outlet.full() and not self.over:
                one = generation.take_one()
                if one is not None:
                    token, text = one  # a call with *one costs 0.1 µs more
                    data = self.events.token(token, text)
                else:
                    data = self._next()
                if data:
                    self._framed = outlet.frame(data)
        except RequestFailed as failed:
            self._end(failed.failure)
        except Exception:
            log.exception("stream_failed", request=generation.record.id)
            self.stop(engine_error())

    def push(self) -> None:
        """Send what has come, as far as the outlet takes it. Raises nothing."""
        generation, outlet = self.generation, self.outlet
        while self._framed or (generation.more and not self.over):
            if outlet.full():
                generation.hold(self.most_pending)
                self.on_full()
                return
            if not self._framed:
                self.render()
                continue
            framed, self._framed = self._framed, b""
            try:
                outlet.write(framed)
            except ConnectionError:
                self._end(CANCELLED)

    def stop(self, failure: Failure) -> None:
        """Break it off, unless it is over."""
        if not self.over:
            self.generation.abort(failure)
            self._end(failure)

    def _next(self) -> bytes:
        plain = self.generation.take_plain(TOKENS_AT_ONCE)
        if plain is not None:
            return self.events.tokens(*plain)
        deltas = self.generation.take(TOKENS_AT_ONCE)
        if deltas:
            return self.events.deltas(uncancelled(deltas))
        if self.generation.ended:
            self._end(None)
        return b""

    def _end(self, failure: Failure | None) -> None:
        self.over, self.failure, self._framed = True, failure, b""
        self.on_end()
