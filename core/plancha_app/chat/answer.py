"""An answer as a server streams it: its pieces, and what it amounted to."""

import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import aiohttp
import attrs

from plancha_app.remote.event_stream import Event, EventStream, EventStreamError
from plancha_app.remote.server_error import ServerError, message_of, refusal
from plancha_app.remote.session import Remote, parsed, told

RENAMED = {"max_tokens": "max_completion_tokens"}
"""A field that newer servers of OpenAI's want under another name."""


@attrs.frozen
class Piece:
    """Of an answer, or of the thoughts before it."""

    text: str
    thought: bool = False


@attrs.define(eq=False)
class Answer:
    """What has come so far. Times are seconds since the request was sent."""

    text: str = ""
    pieces: int = 0
    finish_reason: str | None = None
    usage: Mapping[str, Any] = attrs.field(factory=dict)
    first_s: float | None = None
    last_s: float = 0.0
    _began: float = attrs.field(factory=time.perf_counter)

    @property
    def tokens(self) -> int:
        """As the server counts them, else one a piece."""
        counted = self.usage.get("completion_tokens")
        return counted if isinstance(counted, int) else self.pieces

    @property
    def is_counted(self) -> bool:
        """Whether the server said how many tokens there were."""
        return isinstance(self.usage.get("completion_tokens"), int)

    @property
    def tokens_per_s(self) -> float | None:
        """After the first one, which waits for the prompt; None while there is no second."""
        if self.first_s is None or self.last_s <= self.first_s or self.tokens < 2:
            return None
        return (self.tokens - 1) / (self.last_s - self.first_s)

    def take(self, event: Mapping[str, Any], root: str) -> list[Piece]:
        """What is new in it. Raises `ServerError` for one that tells of an error."""
        if event.get("error"):
            raise ServerError(
                f"{root} broke off: {message_of(event['error']) or 'no reason given'}"
            )
        found: list[Piece] = []
        for choice in _list(event.get("choices")):
            delta = choice.get("delta") or choice.get("message")
            if not isinstance(delta, dict):
                delta = {}
            thought = delta.get("reasoning_content") or delta.get("reasoning")
            found += [
                Piece(text, thought=is_thought)
                for text, is_thought in ((thought, True), (delta.get("content"), False))
                if isinstance(text, str) and text
            ]
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
        if isinstance(event.get("usage"), dict):
            self.usage = event["usage"]
        if found:
            self.last_s = time.perf_counter() - self._began
            self.first_s = self.last_s if self.first_s is None else self.first_s
            self.pieces += len(found)
            self.text += "".join(piece.text for piece in found if not piece.thought)
        return found


async def ask(remote: Remote, body: Mapping[str, Any], answer: Answer) -> AsyncGenerator[Piece]:
    """Every piece as it comes; `answer` grows with them. Raises `ServerError`."""
    fields = {**body, "stream": True, "stream_options": {"include_usage": True}}
    root = remote.address.root
    while True:
        with told(root):
            async with remote.session.post(
                f"{remote.address.api}/chat/completions", json=fields
            ) as response:
                if response.status == 200:
                    async for event in _events(response, root):
                        for piece in answer.take(event, root):
                            yield piece
                    return
                refused = response.status, response.headers, await response.read()
        simpler = _without_what_it_minds(fields, refused[0], refused[2])
        if simpler is None:
            raise refusal(*refused, root)
        fields = simpler


async def _events(response: aiohttp.ClientResponse, root: str) -> AsyncGenerator[Mapping[str, Any]]:
    """The objects of a stream; of a server that does not stream, its one."""
    if response.content_type == "application/json":
        yield parsed(await response.read(), f"what {root} answers")
        return
    stream, ended, any_came = EventStream(), False, False
    try:
        async for chunk in response.content.iter_any():
            for event in stream.feed(chunk):
                any_came = True
                if event.data == b"[DONE]":
                    return
                yield (found := _object(event, root))
                ended = ended or _is_last(found)
        for event in stream.end():
            any_came = True
            if event.data == b"[DONE]":
                return
            yield (found := _object(event, root))
            ended = ended or _is_last(found)
    except EventStreamError as error:
        raise ServerError(f"{root} sends {error}") from None
    if not any_came:
        raise ServerError(f"{root} sends no event stream; is that the right server?")
    if not ended:
        raise ServerError(f"{root} hung up before its answer was complete")


def _object(event: Event, root: str) -> dict[str, Any]:
    found = parsed(event.data, f"an event that {root} sends")
    if event.name == "error" and "error" not in found:
        return {"error": found}
    return found


def _is_last(event: Mapping[str, Any]) -> bool:
    return any(choice.get("finish_reason") for choice in _list(event.get("choices")))


def _list(choices: Any) -> list[dict[str, Any]]:
    found = choices if isinstance(choices, list) else []
    return [choice for choice in found if isinstance(choice, dict)]


def _without_what_it_minds(
    fields: Mapping[str, Any], status: int, body: bytes
) -> dict[str, Any] | None:
    """The same request for a server that knows fewer fields, or others; None: it is not that."""
    if status not in (400, 422):
        return None
    if b"stream_options" in body and "stream_options" in fields:
        return {name: value for name, value in fields.items() if name != "stream_options"}
    for name, other in RENAMED.items():
        if name in fields and other.encode() in body:
            return {RENAMED.get(each, each): value for each, value in fields.items()}
    return None
