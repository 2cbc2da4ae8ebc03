"""OpenAI's shapes: text completions and chat completions, whole and in chunks."""

from collections.abc import Mapping
from typing import Any, Protocol

from plancha.failure import Failure
from plancha.generation import Delta
from plancha.messages import FinishReason
from plancha.record import Record
from plancha_transports.answers import Choice, openai_usage, pieces
from plancha_transports.event_stream import DONE, event
from plancha_transports.failures import error_object
from plancha_transports.request_ids import shown_id


class Shape(Protocol):
    """What text completions and chat completions word differently."""

    whole_name: str
    chunk_name: str

    def choice(self, index: int, text: str, finish_reason: FinishReason | None) -> dict[str, Any]:
        """A choice of a whole answer."""
        ...

    def part(self, index: int, text: str, finish_reason: FinishReason | None) -> dict[str, Any]:
        """A choice of a chunk: some text, or the end and no text."""
        ...

    def opening(self, index: int) -> dict[str, Any] | None:
        """A choice that comes before the first text of `index`, if there is one."""
        ...


class TextShape:
    """Of `/v1/completions`. `echoes` are the prompts' texts when they are to be given back."""

    whole_name = "text_completion"
    chunk_name = "text_completion"

    def __init__(self, echoes: tuple[str, ...]) -> None:
        self._echoes = echoes

    def choice(self, index: int, text: str, finish_reason: FinishReason | None) -> dict[str, Any]:
        """The echo is part of the text."""
        echo = self._echoes[index] if self._echoes else ""
        return self.part(index, echo + text, finish_reason)

    def part(self, index: int, text: str, finish_reason: FinishReason | None) -> dict[str, Any]:
        """The same object, whole or in part."""
        return {"index": index, "text": text, "logprobs": None, "finish_reason": finish_reason}

    def opening(self, index: int) -> dict[str, Any] | None:
        """The echo."""
        return self.part(index, self._echoes[index], None) if self._echoes else None


class ChatShape:
    """Of `/v1/chat/completions`."""

    whole_name = "chat.completion"
    chunk_name = "chat.completion.chunk"

    def choice(self, index: int, text: str, finish_reason: FinishReason | None) -> dict[str, Any]:
        """A message of the assistant."""
        message = {"role": "assistant", "content": text, "refusal": None}
        return self._object(index, "message", message, finish_reason)

    def part(self, index: int, text: str, finish_reason: FinishReason | None) -> dict[str, Any]:
        """A delta; the last one is empty."""
        return self._object(index, "delta", {"content": text} if text else {}, finish_reason)

    def opening(self, index: int) -> dict[str, Any] | None:
        """The role."""
        return self._object(index, "delta", {"role": "assistant", "content": ""}, None)

    def _object(
        self, index: int, name: str, message: Mapping[str, Any], finish_reason: FinishReason | None
    ) -> dict[str, Any]:
        return {"index": index, name: message, "logprobs": None, "finish_reason": finish_reason}


def whole(record: Record, shape: Shape, choices: list[Choice]) -> dict[str, Any]:
    """The answer of a request that was not streamed."""
    return {
        **_head(record, shape.whole_name),
        "choices": [
            shape.choice(index, choice.text, choice.finish_reason)
            for index, choice in enumerate(choices)
        ],
        "usage": openai_usage(record),
    }


class Chunks:
    """The events of a streamed answer. Text that is still undecided makes no chunk."""

    def __init__(self, record: Record, shape: Shape, include_usage: bool) -> None:
        self._record = record
        self._shape = shape
        self._include_usage = include_usage
        self._head = _head(record, shape.chunk_name)
        if include_usage:
            self._head["usage"] = None
        self._opened: set[int] = set()

    def deltas(self, deltas: list[Delta]) -> bytes:
        """A chunk for each prompt's new text, and one for its end."""
        choices: list[dict[str, Any]] = []
        for piece in pieces(deltas):
            if piece.index not in self._opened:
                self._opened.add(piece.index)
                opening = self._shape.opening(piece.index)
                choices += [opening] if opening is not None else []
            if piece.text:
                choices.append(self._shape.part(piece.index, piece.text, None))
            if piece.finish_reason is not None:
                choices.append(self._shape.part(piece.index, "", piece.finish_reason))
        return b"".join([event({**self._head, "choices": [choice]}) for choice in choices])

    def done(self) -> bytes:
        """Usage if it was asked for, and the end that means success."""
        if not self._include_usage:
            return DONE
        return event({**self._head, "choices": [], "usage": openai_usage(self._record)}) + DONE

    def failed(self, failure: Failure) -> bytes:
        """The error object, and no `[DONE]`."""
        return event(error_object(failure))


def _head(record: Record, name: str) -> dict[str, Any]:
    return {
        "id": record.id,
        "request_id": shown_id(record),
        "object": name,
        "created": record.created,
        "model": record.model,
    }
