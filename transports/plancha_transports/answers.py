"""A generation's deltas, gathered into what the doors' answers are made of."""

from collections.abc import Mapping
from itertools import groupby
from typing import Any

import attrs

from plancha.calls.call import Call
from plancha.contracts import Text
from plancha.failure import RequestFailed
from plancha.messages import FinishReason
from plancha.record import Record
from plancha.streams.generation import Generation
from plancha.streams.outbox import Delta
from plancha_transports.failures import CANCELLED
from plancha_transports.token_entries import EntryQueue, TokenEntry


@attrs.define
class Piece:
    """A part of output `index`, or all of it. `entries` is None if nobody asked for any."""

    index: int
    text: str
    entries: tuple[TokenEntry, ...] | None
    finish_reason: FinishReason | None


class Pieces:
    """Puts deltas together: a reader that lags gets several tokens of each output at once."""

    def __init__(self, queues: Mapping[int, EntryQueue]) -> None:
        self._queues = queues  # by output; empty if nobody asked for log-probabilities

    @classmethod
    def of_call(cls, call: Call, text: Text, generation: Generation) -> "Pieces":
        """With log-probabilities if the call wants them."""
        if call.logprobs is None:
            return cls({})
        queues = {}
        for stream in generation.streams:
            skip = call.skip_special_tokens
            decoder = text.stream(stop=(), min_tokens=0, skip_special_tokens=skip)
            queues[stream.index] = EntryQueue(decoder)
        return cls(queues)

    def of(self, deltas: list[Delta]) -> list[Piece]:
        """One for each output that the deltas concern."""
        if len(deltas) == 1:  # most are
            return [self._piece(deltas)]
        groups = groupby(deltas, key=lambda delta: delta.index)
        return [self._piece(list(group)) for _, group in groups]

    def _piece(self, deltas: list[Delta]) -> Piece:
        last = deltas[-1]
        text = "".join([delta.text for delta in deltas])
        entries = self._queues[last.index].take(deltas) if self._queues else None
        return Piece(last.index, text, entries, last.finish_reason)


def uncancelled(deltas: list[Delta]) -> list[Delta]:
    """`deltas` as they are. Raises `RequestFailed` when one of their streams was cancelled."""
    for delta in deltas:
        if delta.finish_reason == "cancelled":
            raise RequestFailed(CANCELLED)
    return deltas


def tokens_of(deltas: list[Delta]) -> tuple[list[int], list[str]]:
    """The tokens among them, and their texts."""
    found = [delta for delta in deltas if delta.token is not None]
    return [delta.token or 0 for delta in found], [delta.text for delta in found]


async def collect(generation: Generation, pieces: Pieces) -> list[Piece]:
    """The whole outputs in their order. Raises `RequestFailed`."""
    found: dict[int, list[Piece]] = {stream.index: [] for stream in generation.streams}
    async for deltas in generation:
        for piece in pieces.of(uncancelled(deltas)):
            found[piece.index].append(piece)
    return [_joined(parts) for parts in found.values()]


def openai_usage(record: Record) -> dict[str, Any]:
    """OpenAI's usage object. A prompt counts once, however many outputs it has."""
    return {
        "prompt_tokens": record.input_tokens,
        "completion_tokens": record.output_tokens,
        "total_tokens": record.input_tokens + record.output_tokens,
        "prompt_tokens_details": {"cached_tokens": record.cached_tokens},
    }


def usage(record: Record) -> dict[str, int]:
    """The usage object of our own doors; the cached tokens are some of the input tokens."""
    return {
        "input_tokens": record.input_tokens,
        "cached_tokens": record.cached_tokens,
        "output_tokens": record.output_tokens,
    }


def _joined(parts: list[Piece]) -> Piece:
    last = parts[-1]
    entries = None
    if last.entries is not None:
        entries = tuple(entry for part in parts for entry in part.entries or ())
    return Piece(last.index, "".join([part.text for part in parts]), entries, last.finish_reason)
