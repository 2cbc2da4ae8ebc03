"""OpenAI's two ways to write log-probabilities down: of text completions, and of chats."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from plancha.streams.token_logprobs import TokenLogprob
from plancha_transports.token_entries import TokenEntry

TokenBytes = Callable[[int], bytes]
"""An id's own text in UTF-8; b"" for ids that have none."""


def text_logprobs(
    entries: Sequence[TokenEntry], token_bytes: TokenBytes, characters_before: int
) -> dict[str, Any]:
    """The four lists of `/v1/completions`, one entry a token.

    `text_offset` counts characters of the choice's text; `characters_before` of them precede what
    the entries' own offsets count. A part of a character is written `bytes:\\xf0`; its offset is
    the character's. A prompt's first token has null twice.
    """
    found = [entry.logprob for entry in entries]
    return {
        "tokens": [_spelt(token_bytes(entry.token), "bytes:") for entry in entries],
        "token_logprobs": [None if each is None else each.logprob for each in found],
        "top_logprobs": [None if each is None else _by_text(each, token_bytes) for each in found],
        "text_offset": [characters_before + entry.offset for entry in entries],
    }


def chat_logprobs(entries: Iterable[TokenEntry], token_bytes: TokenBytes) -> dict[str, Any]:
    """The object of `/v1/chat/completions`: `bytes` are exact, a part of a character is `\\xf0`."""
    return {
        "content": [
            {
                **_token(entry.token, entry.logprob.logprob, token_bytes),
                "top_logprobs": [
                    _token(token, logprob, token_bytes) for token, logprob in entry.logprob.top
                ],
            }
            for entry in entries
            if entry.logprob is not None
        ],
        "refusal": None,
    }


def _by_text(logprob: TokenLogprob, token_bytes: TokenBytes) -> Mapping[str, float]:
    """The token itself always among its alternatives; of those written alike, the best."""
    texts: dict[str, float] = {}
    for token, value in (*logprob.top, (logprob.token, logprob.logprob)):
        texts.setdefault(_spelt(token_bytes(token), "bytes:"), value)
    return texts


def _token(token: int, logprob: float, token_bytes: TokenBytes) -> dict[str, Any]:
    data = token_bytes(token)
    return {"token": _spelt(data, ""), "bytes": list(data) or None, "logprob": logprob}


def _spelt(data: bytes, prefix: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return prefix + "".join([f"\\x{byte:02x}" for byte in data])
