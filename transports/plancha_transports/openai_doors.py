"""`POST /v1/completions` and `POST /v1/chat/completions`."""

from collections.abc import Callable
from typing import Any

from aiohttp import web

from plancha.contracts import Text
from plancha.gateway import Gateway
from plancha.streams.generation import Generation
from plancha_transports.answers import Pieces, collect
from plancha_transports.asks import Ask, chat_ask, completion_ask
from plancha_transports.callers import called_by
from plancha_transports.echo import Echo
from plancha_transports.event_stream import stream_events
from plancha_transports.failures import json_response
from plancha_transports.openai_answers import Chunks, whole
from plancha_transports.options import HttpOptions
from plancha_transports.request_bodies import BodyReader
from plancha_transports.request_ids import RECORD, header_label
from plancha_transports.shapes import ChatShape, Shape, TextShape
from plancha_transports.timeouts import timed_by


class OpenAIDoors:
    """Both answer as OpenAI's API does, whole or as a stream."""

    def __init__(self, gateway: Gateway, options: HttpOptions, bodies: BodyReader) -> None:
        self._gateway = gateway
        self._bodies = bodies
        self._options = options

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """Continue each prompt."""
        label, options = header_label(request), self._options
        return await self._answer(request, lambda body: completion_ask(body, label, options))

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """Answer the last message."""
        label, options = header_label(request), self._options
        return await self._answer(request, lambda body: chat_ask(body, label, options))

    async def _answer(
        self, request: web.Request, understand: Callable[[dict[str, Any]], Ask]
    ) -> web.StreamResponse:
        async with self._bodies.reading(request, understand) as ask:
            text = self._gateway.text
            call = called_by(request, timed_by(request, ask.call))
            accepted = await self._gateway.generate(call)
        async with accepted as generation:
            record = request[RECORD] = generation.record
            shape = _shape(ask, text, generation)
            pieces = Pieces.of_call(ask.call, text, generation)
            if not ask.stream:
                return json_response(whole(record, shape, await collect(generation, pieces)))
            events = Chunks(record, shape, pieces, ask.include_usage)
            return await stream_events(request, generation, events, self._options)


def _shape(ask: Ask, text: Text, generation: Generation) -> Shape:
    if ask.call.messages is not None:
        return ChatShape(text.token_bytes)
    echo = Echo(ask.call, text, generation.streams) if ask.echo else None
    return TextShape(text.token_bytes, echo)
