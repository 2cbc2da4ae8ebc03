"""How a GGUF file's `tokenizer.ggml.pre` splits text before byte-pair merges.

The patterns are the models' own, as their tokenizer.json files have them.
"""

from typing import Any

import attrs
from tokenizers import Regex, normalizers, pre_tokenizers

from plancha.contracts import LoadError

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}DIGITS"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_PUNCTUATION = r"[\p{P}\$\+<=>\^~\|]+"


@attrs.frozen(kw_only=True)
class PreTokenizer:
    """Patterns applied one after the other, each splitting what the last one left.

    `whole_words`: a piece that is in the vocabulary is one token, whatever the merges say.
    """

    patterns: tuple[str, ...]
    compose: bool = False  # Unicode normalisation form C first
    whole_words: bool = False
    adds_bos: bool = False  # unless the file says otherwise

    def build(self) -> pre_tokenizers.Sequence:
        """For `Tokenizer.pre_tokenizer`: the patterns, then bytes spelt as characters."""
        splits = [pre_tokenizers.Split(Regex(regex), "isolated") for regex in self.patterns]
        to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([*splits, to_bytes])

    def normalizer(self) -> normalizers.NFC | None:
        """For `Tokenizer.normalizer`."""
        return normalizers.NFC() if self.compose else None


_LLAMA3 = PreTokenizer(
    patterns=(_CL100K.replace("DIGITS", "{1,3}"),), whole_words=True, adds_bos=True
)
_BY_NAME = {
    "default": PreTokenizer(patterns=(_PUNCTUATION, _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    "gpt-2": PreTokenizer(patterns=(_GPT2,)),
    "smollm": PreTokenizer(patterns=(r"\p{N}", _GPT2)),
    "qwen2": PreTokenizer(patterns=(_CL100K.replace("DIGITS", ""),), compose=True),
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
}


def pre_tokenizer(name: Any) -> PreTokenizer:
    """By its name in the file. Raises `LoadError` for one that is not known here."""
    if not isinstance(name, str) or name not in _BY_NAME:
        raise LoadError(
            f"tokenizer.ggml.pre is {name!r}, which is not supported; "
            f"known are {', '.join(_BY_NAME)}."
        )
    return _BY_NAME[name]
