"""OpenAI's answers: whole, and in chunks."""

from typing import Any

from plancha.failure import Failure
from plancha.outbox import Delta
from plancha.record import Record
from plancha_transports.answers import Piece, Pieces, openai_usage
from plancha_transports.event_stream import DONE, event
from plancha_transports.failures import error_object
from plancha_transports.request_ids import shown_id
from plancha_transports.shapes import Shape


def whole(record: Record, shape: Shape, choices: list[Piece]) -> dict[str, Any]:
    """The answer of a request that was not streamed."""
    return {
        **_head(record, shape.whole_name),
        "choices": [
            shape.choice(choice.index, choice.text, choice.entries, choice.finish_reason)
            for choice in choices
        ],
        "usage": openai_usage(record),
    }


class Chunks:
    """The events of a streamed answer. Text that is still undecided makes no chunk."""

    def __init__(self, record: Record, shape: Shape, pieces: Pieces, include_usage: bool) -> None:
        self._record = record
        self._shape = shape
        self._pieces = pieces
        self._include_usage = include_usage
        self._head = _head(record, shape.chunk_name)
        if include_usage:
            self._head["usage"] = None
        self._opened: set[int] = set()

    def deltas(self, deltas: list[Delta]) -> bytes:
        """A chunk for each output's new text with its log-probabilities, and one for its end."""
        choices: list[dict[str, Any]] = []
        for piece in self._pieces.of(deltas):
            if piece.index not in self._opened:
                self._opened.add(piece.index)
                opening = self._shape.opening(piece.index)
                choices += [opening] if opening is not None else []
            if piece.text or piece.entries:
                entries = piece.entries or None
                choices.append(self._shape.part(piece.index, piece.text, entries, None))
            if piece.finish_reason is not None:
                choices.append(self._shape.part(piece.index, "", None, piece.finish_reason))
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
