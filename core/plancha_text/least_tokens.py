"""A lower bound of a prompt's length in tokens that costs no tokenising."""

from typing import Any

import attrs
import orjson

from plancha_text.model_tokenizer import ModelTokenizer

_COMPOSING = 3
"""How much shorter UTF-8 gets at most by Unicode normalisation form C (U+0390 and Hangul)."""


@attrs.frozen
class LeastTokens:
    """A token stands for at most `longest` bytes of a prompt; 0: there is no bound.

    Bytes in `lost` have no token and are left out by the tokenizer.
    """

    longest: int
    lost: bytes

    @classmethod
    def of(cls, tokenizer: ModelTokenizer) -> "LeastTokens":
        """By the vocabulary, and by what the tokenizer does to text before it looks tokens up."""
        added = tokenizer.tokenizer.get_added_tokens_decoder().values()
        if any(token.lstrip or token.rstrip for token in added):
            return cls(0, b"")  # such a token takes in any amount of space
        known = [text for text in tokenizer.token_bytes if text]
        bytes_known = {text for text in known if len(text) == 1}
        lost = bytes(byte for byte in range(256) if bytes([byte]) not in bytes_known)
        normalizer = tokenizer.tokenizer.normalizer
        shrinking = _shrinking(None if normalizer is None else normalizer.__getstate__())
        if shrinking > 1 and lost:
            return cls(0, b"")
        return cls(max(map(len, known), default=0) * shrinking, lost)

    def __call__(self, prompt: str) -> int:
        """Tokens that `prompt` has at least."""
        if not self.longest:
            return 0
        data = prompt.encode("utf-8", "surrogatepass")
        return -(-len(data.translate(None, self.lost)) // self.longest)


def _shrinking(state: bytes | None) -> int:
    """How many bytes a normaliser makes into one at most; 0 where that is not known."""
    return 1 if state is None else _shrinking_of(orjson.loads(state))


def _shrinking_of(normalizer: dict[str, Any]) -> int:
    match normalizer:
        case {"type": "Sequence", "normalizers": list(steps)}:
            product = 1
            for step in steps:
                product *= _shrinking_of(step)
            return product
        case {"type": "Prepend"} | {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}:
            return 1
        case {"type": "NFC"}:
            return _COMPOSING
    return 0
