"""`POST /v1/completions` and `POST /v1/chat/completions`."""

from aiohttp import web

from plancha.gateway import Gateway
from plancha_transports.answers import collect
from plancha_transports.asks import Ask, chat_ask, completion_ask
from plancha_transports.event_stream import stream_events
from plancha_transports.failures import json_response
from plancha_transports.json_object import read_object
from plancha_transports.openai_answers import ChatShape, Chunks, Shape, TextShape, whole
from plancha_transports.options import HttpOptions
from plancha_transports.request_ids import RECORD, header_label


class OpenAIDoors:
    """Both answer as OpenAI's API does, whole or as a stream."""

    def __init__(self, gateway: Gateway, options: HttpOptions) -> None:
        self._gateway = gateway
        self._options = options

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """Continue each prompt."""
        body = await read_object(request, self._options.max_body)
        ask = completion_ask(body, header_label(request), self._options.max_prompts)
        return await self._answer(request, ask)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """Answer the last message."""
        body = await read_object(request, self._options.max_body)
        return await self._answer(request, chat_ask(body, header_label(request)))

    async def _answer(self, request: web.Request, ask: Ask) -> web.StreamResponse:
        async with await self._gateway.generate(ask.call) as generation:
            record = request[RECORD] = generation.record
            shape = self._shape(ask)
            if not ask.stream:
                return json_response(whole(record, shape, await collect(generation)))
            events = Chunks(record, shape, ask.include_usage)
            return await stream_events(request, generation, events, self._options)

    def _shape(self, ask: Ask) -> Shape:
        if ask.call.messages is not None:
            return ChatShape()
        return TextShape(self._echoes(ask) if ask.echo else ())

    def _echoes(self, ask: Ask) -> tuple[str, ...]:
        skip = ask.call.skip_special_tokens
        return tuple(
            prompt
            if isinstance(prompt, str)
            else self._gateway.text_of(prompt, skip_special_tokens=skip)
            for prompt in ask.call.prompts
        )
