"""What the ids of a vocabulary mean in bytes, so that decoding is concatenation."""

import re
from collections.abc import Callable
from typing import Any

from plancha.contracts import LoadError

Spelling = Callable[[str], bytes]
"""From a token as the vocabulary spells it to the bytes it stands for."""


def _byte_alphabet() -> dict[str, int]:
    """The 256 printable characters byte-level vocabularies are spelt in (Radford et al. 2019).

    Printable Latin-1 stands for itself; the other bytes, in order, are U+0100 and up.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    moved = {chr(0x100 + place): byte for place, byte in enumerate(others)}
    return {chr(byte): byte for byte in printable} | moved


BYTE_ALPHABET = _byte_alphabet()


def byte_level(token: str) -> bytes:
    """GPT-2's spelling: one character a byte. A token outside the alphabet is its own text."""
    try:
        return bytes(map(BYTE_ALPHABET.__getitem__, token))
    except KeyError:
        return token.encode()


def sentencepiece(token: str, space: str = "▁", byte_fallback: bool = True) -> bytes:
    """SentencePiece's spelling: `▁` is a space and, with `byte_fallback`, `<0xE4>` a byte."""
    if byte_fallback and _BYTE_TOKEN.fullmatch(token):
        return bytes([int(token[3:5], 16)])
    return token.replace(space, " ").encode()


_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")


def spelling(decoder: dict[str, Any] | None) -> Spelling:
    """The spelling behind the `decoder` of a tokenizer.json.

    Space is dropped by such decoders at the start of a whole text, which output never is, so that
    part is left out. Raises `LoadError` for a decoder that is more than one token after the other.
    """
    steps = _steps(decoder)
    kinds = {str(step.get("type")) for step in steps}
    if kinds == {"ByteLevel"}:
        return byte_level
    if steps and all(map(_is_sentencepiece, steps)) and kinds & {"Replace", "Metaspace"}:
        space = next(
            step["replacement"] if step["type"] == "Metaspace" else step["pattern"]["String"]
            for step in steps
            if step["type"] in ("Replace", "Metaspace")
        )
        fallback = "ByteFallback" in kinds
        return lambda token: sentencepiece(token, space, fallback)
    raise LoadError(
        f"the tokenizer's decoder {sorted(kinds) or 'null'} is not supported; "
        "ByteLevel and SentencePiece's (Replace or Metaspace, with ByteFallback) are."
    )


def _steps(decoder: dict[str, Any] | None) -> list[dict[str, Any]]:
    if decoder is None:
        return []
    if decoder.get("type") == "Sequence":
        return [step for part in decoder["decoders"] for step in _steps(part)]
    return [decoder]


def _is_sentencepiece(step: dict[str, Any]) -> bool:
    match step:
        case {"type": "ByteFallback" | "Fuse"}:
            return True
        case {"type": "Metaspace", "replacement": str()}:
            return True
        case {"type": "Replace", "pattern": {"String": str()}, "content": " "}:
            return True
        case {"type": "Strip", "content": " ", "stop": 0}:
            return True
    return False
