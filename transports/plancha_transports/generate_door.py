"""`POST /generate`: the plain way to watch a model write, one event a token."""

from collections.abc import Sequence

import orjson
from aiohttp import web

from plancha.failure import Failure
from plancha.gateway import Gateway
from plancha.messages import FinishReason
from plancha.record import Record
from plancha.streams.outbox import Delta
from plancha_transports.answers import tokens_of, usage
from plancha_transports.asks import generate_ask
from plancha_transports.callers import called_by
from plancha_transports.event_stream import event, opened, stream_events
from plancha_transports.failures import late_error_object
from plancha_transports.options import HttpOptions
from plancha_transports.request_bodies import BodyReader
from plancha_transports.request_ids import RECORD, header_label, shown_id
from plancha_transports.timeouts import timed_by


class GenerateDoor:
    """Always a stream."""

    def __init__(self, gateway: Gateway, options: HttpOptions, bodies: BodyReader) -> None:
        self._gateway = gateway
        self._bodies = bodies
        self._options = options

    async def generate(self, request: web.Request) -> web.StreamResponse:
        """Answer one prompt or one chat."""
        label = header_label(request)
        async with self._bodies.reading(request, lambda body: generate_ask(body, label)) as ask:
            call = called_by(request, timed_by(request, ask.call))
            accepted = await self._gateway.generate(call)
        async with accepted as generation:
            request[RECORD] = generation.record
            events = TokenEvents(generation.record)
            return await stream_events(request, generation, events, self._options)


class TokenEvents:
    """One event per token, also when its text is still undecided; then `done` or `error`.

    `index` counts the output tokens from 0. `done` has the text that was held back to the end, so
    the texts of all events, joined, are the answer.
    """

    def __init__(self, record: Record) -> None:
        self._record = record
        self._head = b"data: " + opened({"id": record.id}) + b',"index":'
        self._tokens = 0
        self._finish_reason: FinishReason | None = None
        self._rest = ""

    def token(self, token: int, text: str) -> bytes:
        """The next event."""
        index = self._tokens
        self._tokens = index + 1
        return b'%b%d,"token":%d,"text":%b}\n\n' % (self._head, index, token, orjson.dumps(text))

    def tokens(self, tokens: Sequence[int], texts: Sequence[str]) -> bytes:
        """The next events."""
        return b"".join(list(map(self.token, tokens, texts)))

    def deltas(self, deltas: list[Delta]) -> bytes:
        """One event per token."""
        end = deltas[-1]
        if end.token is None:
            self._finish_reason, self._rest = end.finish_reason, end.text
        return self.tokens(*tokens_of(deltas))

    def done(self) -> bytes:
        """How it ended and what it cost."""
        end = {
            "id": self._record.id,
            "request_id": shown_id(self._record),
            "model": self._record.model,
            "text": self._rest,
            "finish_reason": self._finish_reason,
            "usage": usage(self._record),
        }
        return event(end, "done")

    def failed(self, failure: Failure) -> bytes:
        """The error object with our id."""
        return event({"id": self._record.id, **late_error_object(failure)}, "error")
