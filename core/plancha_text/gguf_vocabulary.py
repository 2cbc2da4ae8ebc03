"""The tokens of a GGUF file: their texts, kinds, and the ids that have a name."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import attrs

from plancha.contracts import LoadError
from plancha_text.token_bytes import Spelling


class Kind(IntEnum):
    """`tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


SPECIAL = (Kind.UNKNOWN, Kind.CONTROL)
USED = tuple(kind for kind in Kind if kind != Kind.UNUSED)
_NAMED = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}


@attrs.frozen(eq=False)
class GgufVocabulary:
    """By id, a token's text and kind; `named` has ids by the names chat templates use."""

    entries: tuple[tuple[str, Kind], ...]
    named: Mapping[str, int]

    @classmethod
    def read(cls, metadata: Mapping[str, Any]) -> "GgufVocabulary":
        """Raises `LoadError` naming the key that is missing or does not fit."""
        tokens = required_list(metadata, "tokenizer.ggml.tokens", str)
        kinds = metadata.get("tokenizer.ggml.token_type", [Kind.NORMAL] * len(tokens))
        require_length("tokenizer.ggml.token_type", kinds, len(tokens))
        known = {int(kind): kind for kind in Kind}
        for kind in kinds:
            if not isinstance(kind, int) or kind not in known:
                raise LoadError(f"tokenizer.ggml.token_type has {kind!r}; it must be from 1 to 6.")
        entries = [(text, known[kind]) for text, kind in zip(tokens, kinds, strict=True)]
        return cls(tuple(entries), _named(metadata, len(tokens)))

    def ids(self, *kinds: Kind) -> dict[str, int]:
        """Ids by text, of these kinds; of two tokens with one text the first."""
        backwards = reversed(tuple(enumerate(self.entries)))
        return {text: token for token, (text, kind) in backwards if kind in kinds and text}

    def texts(self, *kinds: Kind) -> list[str]:
        """Texts of the tokens of these kinds, in order of their ids."""
        return [text for text, kind in self.entries if kind in kinds and text]

    def token_bytes(self, spell: Spelling) -> tuple[bytes | None, ...]:
        """By id, what the token stands for; None for unused ids."""
        return tuple([_token_bytes(text, kind, spell) for text, kind in self.entries])


def _token_bytes(text: str, kind: Kind, spell: Spelling) -> bytes | None:
    if kind in (Kind.NORMAL, Kind.BYTE):
        return spell(text)
    return None if kind == Kind.UNUSED else text.encode()


def _named(metadata: Mapping[str, Any], size: int) -> dict[str, int]:
    named = {}
    for name, key in _NAMED.items():
        token = metadata.get(f"tokenizer.ggml.{key}")
        if token is None:
            continue
        if not isinstance(token, int) or not 0 <= token < size:
            raise LoadError(f"tokenizer.ggml.{key} is {token!r}; it must be from 0 to {size - 1}.")
        named[name] = token
    return named


def required_list(metadata: Mapping[str, Any], key: str, kind: type) -> list[Any]:
    """The array of `kind` under `key`. Raises `LoadError` when there is none."""
    found = metadata.get(key)
    if not isinstance(found, list) or not all(isinstance(each, kind) for each in found):
        raise LoadError(f"the file has no array {key} of {kind.__name__}; its text needs one.")
    return found


def require_length(key: str, found: Any, tokens: int) -> None:
    """Raises `LoadError` for what is no array with one entry a token."""
    if not isinstance(found, list):
        raise LoadError(f"{key} is {found!r}; it must be an array.")
    if len(found) != tokens:
        raise LoadError(f"{key} has {len(found)} entries for {tokens} tokenizer.ggml.tokens.")
