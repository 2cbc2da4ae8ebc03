"""Tokenizers to test with: small ones of every kind, and the default model's."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

from plancha_text.byte_text import byte_text
from plancha_text.gguf_tokenizer import gguf_tokenizer
from plancha_text.text import ModelText, from_gguf

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
PIECES = ("▁", "▁Hello", "▁world", "!", ".", ":", "▁Say", "▁is", "▁Ber", "lin", "▁Hi", "▁Berlin.")


class Joined(Protocol):
    """Pushes `ids` one by one: what each gave, and last what finishing gave."""

    def __call__(self, text: ModelText, ids: Sequence[int], **how: Any) -> list[str]: ...


@pytest.fixture(scope="session")
def deltas() -> Joined:
    def push_all(text: ModelText, ids: Sequence[int], **how: Any) -> list[str]:
        how = {"stop": (), "min_tokens": 0, "skip_special_tokens": True, **how}
        stream = text.stream(**how)
        return [*[stream.push(token) for token in ids], stream.finish()]

    return push_all


@pytest.fixture(scope="session")
def bytes_as_tokens() -> ModelText:
    return byte_text()


@pytest.fixture(scope="session")
def spm_metadata() -> dict[str, Any]:
    """A SentencePiece vocabulary: three control tokens, 256 bytes, then `PIECES`."""
    tokens = ["<unk>", "<s>", "</s>", *[f"<0x{byte:02X}>" for byte in range(256)], *PIECES]
    kinds = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(PIECES)]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.scores": [0.0] * 259 + [-float(rank) for rank in range(len(PIECES))],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }


@pytest.fixture(scope="session")
def spm_text(spm_metadata: dict[str, Any]) -> ModelText:
    return ModelText(gguf_tokenizer(spm_metadata))


@pytest.fixture(scope="session")
def spm_ids(spm_metadata: dict[str, Any]) -> Callable[[str], list[int]]:
    """Ids of pieces written as `▁Hello|[F0]|!`, `[F0]` being a byte."""
    tokens = spm_metadata["tokenizer.ggml.tokens"]

    def ids(pieces: str) -> list[int]:
        names = (f"<0x{each[1:3]}>" if each[0] == "[" else each for each in pieces.split("|"))
        return [tokens.index(name) for name in names]

    return ids


@pytest.fixture(scope="session")
def gpt2_metadata() -> dict[str, Any]:
    """A byte-level vocabulary with a few merges, a control, a user-defined and an unused token."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [chr(0x100 + place) for place in range(256 - len(printable))]
    alphabet = [*map(chr, printable), *moved]
    merged = ["he", "ll", "hell", "hello", "Ġw", "12", "123", "'s", "ĠĠ", "...", ".."]
    tokens = [*alphabet, *merged, "<|end|>", "<think>", "[PAD0]"]
    kinds = [NORMAL] * (256 + len(merged)) + [CONTROL, USER_DEFINED, UNUSED]
    merges = ["h e", "l l", "he ll", "hell o", "Ġ w", "1 2", "12 3", "' s", "Ġ Ġ", ". .", ".. ."]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.eos_token_id": tokens.index("<|end|>"),
    }


@pytest.fixture(scope="session")
def default_text(model_file: Path) -> ModelText:
    """The default model's. Mark tests `model`."""
    return from_gguf(model_file)
