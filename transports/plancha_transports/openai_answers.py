"""OpenAI's answers: whole, and in chunks."""

from collections.abc import Sequence
from secrets import token_hex
from typing import Any

import orjson

from plancha.failure import Failure
from plancha.record import Record
from plancha.streams.outbox import Delta
from plancha_transports.answers import Piece, Pieces, openai_usage
from plancha_transports.event_stream import DONE, event
from plancha_transports.failures import late_error_object
from plancha_transports.request_ids import shown_id
from plancha_transports.shapes import Shape

MARK = token_hex()
"""Where a text goes; nothing that a client sends can hold it."""

MARK_IN_JSON = orjson.dumps(MARK)


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
        self._around: dict[int, tuple[bytes, bytes]] = {}  # an opened output's text, in a chunk

    def token(self, token: int, text: str) -> bytes:
        """A chunk with its text."""
        around = self._around.get(0)
        if around is None:
            return self.deltas([Delta(0, token, text)])
        return around[0] + orjson.dumps(text) + around[1] if text else b""

    def tokens(self, tokens: Sequence[int], texts: Sequence[str]) -> bytes:
        """A chunk with their text."""
        return self.token(tokens[-1], "".join(texts))

    def deltas(self, deltas: list[Delta]) -> bytes:
        """A chunk for each output's new text with its log-probabilities, and one for its end."""
        chunks: list[bytes] = []
        for piece in self._pieces.of(deltas):
            around = self._around.get(piece.index)
            if around is None:
                around = self._around[piece.index] = self._text_chunk(piece.index)
                opening = self._shape.opening(piece.index)
                chunks += [self._chunk(opening)] if opening is not None else []
            if piece.entries:
                part = self._shape.part(piece.index, piece.text, piece.entries, None)
                chunks.append(self._chunk(part))
            elif piece.text:
                chunks += (around[0], orjson.dumps(piece.text), around[1])
            if piece.finish_reason is not None:
                part = self._shape.part(piece.index, "", None, piece.finish_reason)
                chunks.append(self._chunk(part))
        return b"".join(chunks)

    def done(self) -> bytes:
        """Usage if it was asked for, and the end that means success."""
        if not self._include_usage:
            return DONE
        return event({**self._head, "choices": [], "usage": openai_usage(self._record)}) + DONE

    def failed(self, failure: Failure) -> bytes:
        """The error object, and no `[DONE]`."""
        return event(late_error_object(failure))

    def _chunk(self, choice: dict[str, Any]) -> bytes:
        return event({**self._head, "choices": [choice]})

    def _text_chunk(self, index: int) -> tuple[bytes, bytes]:
        """A chunk that has nothing but text, before and behind it: serialised once an output."""
        before, behind = self._chunk(self._shape.part(index, MARK, None, None)).split(MARK_IN_JSON)
        return before, behind


def _head(record: Record, name: str) -> dict[str, Any]:
    return {
        "id": record.id,
        "request_id": shown_id(record),
        "object": name,
        "created": record.created,
        "model": record.model,
    }
