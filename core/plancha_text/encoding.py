"""Text to ids through the tokenizers library, without stopping the rest of the process."""

import re

import numpy as np
from tokenizers import Tokenizer

from plancha.failure import invalid
from plancha.messages import Int32s

_SURROGATE = re.compile("[\ud800-\udfff]")


def encode_ids(tokenizer: Tokenizer, text: str) -> Int32s:
    """Ids of `text`, nothing added.

    `Tokenizer.encode` keeps the interpreter locked (1.1 s for 1 MB); the batch call does not.
    """
    encoding = tokenizer.encode_batch_fast([text], add_special_tokens=False)[0]
    return np.array(encoding.ids, dtype=np.int32)


def require_unicode(text: str, param: str, name: str | None = None) -> None:
    """Raises `RequestFailed` with the place of the first lone surrogate: such text has no bytes."""
    found = _SURROGATE.search(text)
    if found is not None:
        raise invalid(
            param,
            f"{name or param} has a lone surrogate (U+{ord(found[0]):04X}) at character "
            f"{found.start()}; it must be valid Unicode.",
        )
