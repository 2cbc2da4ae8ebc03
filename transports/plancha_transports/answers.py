"""A generation's deltas, gathered into what the doors' answers are made of."""

from collections.abc import Iterator
from itertools import groupby

import attrs

from plancha.failure import RequestFailed
from plancha.generation import Delta, Generation
from plancha.messages import FinishReason
from plancha.record import Record
from plancha_transports.failures import CANCELLED


@attrs.frozen
class Piece:
    """What one round of deltas adds to the answer for prompt `index`."""

    index: int
    text: str
    finish_reason: FinishReason | None


@attrs.frozen
class Choice:
    """The whole answer for one prompt."""

    text: str
    finish_reason: FinishReason


def uncancelled(deltas: list[Delta]) -> list[Delta]:
    """`deltas` as they are. Raises `RequestFailed` when one of their streams was cancelled."""
    if any(delta.finish_reason == "cancelled" for delta in deltas):
        raise RequestFailed(CANCELLED)
    return deltas


def pieces(deltas: list[Delta]) -> Iterator[Piece]:
    """One piece per prompt: a reader that lags gets several tokens at once."""
    for index, group in groupby(deltas, key=lambda delta: delta.index):
        ones = list(group)
        yield Piece(index, "".join([one.text for one in ones]), ones[-1].finish_reason)


async def collect(generation: Generation) -> list[Choice]:
    """The whole answers, in the order of the prompts. Raises `RequestFailed`."""
    texts: dict[int, list[str]] = {stream.index: [] for stream in generation.streams}
    reasons: dict[int, FinishReason] = {}
    async for deltas in generation:
        for piece in pieces(uncancelled(deltas)):
            texts[piece.index].append(piece.text)
            if piece.finish_reason is not None:
                reasons[piece.index] = piece.finish_reason
    return [Choice("".join(text), reasons[index]) for index, text in texts.items()]


def openai_usage(record: Record) -> dict[str, int]:
    """OpenAI's usage object."""
    return {
        "prompt_tokens": record.input_tokens,
        "completion_tokens": record.output_tokens,
        "total_tokens": record.input_tokens + record.output_tokens,
    }


def usage(record: Record) -> dict[str, int]:
    """The usage object of our own doors."""
    return {"input_tokens": record.input_tokens, "output_tokens": record.output_tokens}
