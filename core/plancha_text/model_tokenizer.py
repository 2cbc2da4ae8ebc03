"""What a model's files say about text, whichever format they came in."""

from collections.abc import Mapping

import attrs
from tokenizers import AddedToken, Tokenizer


@attrs.frozen(kw_only=True, eq=False)
class ModelTokenizer:
    """A tokenizer and what its ids mean.

    `tokenizer` parses special tokens and adds none. `token_bytes[id]` is the id's text in bytes,
    None for ids without text (gaps, padding); special tokens have theirs too. `prefix` goes before
    a raw prompt that does not begin with it (the BOS, if the model wants one). `named` are the
    names a chat template knows tokens by (`bos_token`, `eos_token`, …).
    """

    tokenizer: Tokenizer
    token_bytes: tuple[bytes | None, ...]
    special: Mapping[str, int]  # special tokens by their text
    prefix: tuple[int, ...] = ()
    named: Mapping[str, str] = attrs.field(factory=dict)
    chat_template: str | None = None


def special_token(text: str) -> AddedToken:
    """A token that encodes to itself wherever its text stands, before any normalising."""
    return AddedToken(text, special=True, normalized=False)
