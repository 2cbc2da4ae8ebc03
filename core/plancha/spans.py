"""What a gateway tells a tracing system of its requests: times, ids and counts, never content."""

from collections.abc import Sequence
from typing import Protocol

from plancha.calls.call import Call
from plancha.failure import Failure
from plancha.record import Record
from plancha.streams.outbox import Stream


class Span(Protocol):
    """One request, from its submission on. It is told of an end, or of a refusal, once."""

    def ended(self, record: Record, streams: Sequence[Stream]) -> None:
        """The record is closed."""
        ...

    def refused(self, failure: Failure) -> None:
        """The worker did not accept it."""
        ...


class Spans(Protocol):
    """Makes spans. Called on the event loop, so nothing of it may block."""

    def begin(self, call: Call, request_id: str) -> Span:
        """A request is submitted; its caller may have a span of its own (`Call.traceparent`)."""
        ...
