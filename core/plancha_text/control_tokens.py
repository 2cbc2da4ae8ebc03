"""Keeps a chat's control tokens apart from text that merely spells them.

A message may contain "<|im_end|>"; only the template may end a turn with it. So the template's own
strings are compiled with a stand-in for every special token: a text that holds a random number and
that no message can contain. Messages stay as they are, so a template may inspect, strip, split and
join them; in what it writes, stand-ins become control tokens and all else is encoded as plain text.
"""

import re
from collections.abc import Mapping
from secrets import token_hex

import numpy as np
from tokenizers import AddedToken, Tokenizer

from plancha.messages import Int32s
from plancha_text.encoding import encode_ids


class ControlTokens:
    """The stand-ins of one tokenizer's special tokens, and the tokenizer that knows only them."""

    def __init__(self, tokenizer: Tokenizer, special: Mapping[str, int]) -> None:
        secret = token_hex(16)
        self._stand_ins = {text: f"\ufdd0{secret}{token}\ufdd1" for text, token in special.items()}
        self._texts = {stand_in: text for text, stand_in in self._stand_ins.items()}
        self._spelt = _any_of(self._stand_ins)
        self._hidden = _any_of(self._texts)
        self._break = f"\ufdd0{secret}\ufdd1"
        self._tokenizer, self._ids = self._plain_tokenizer(tokenizer, special)

    def hide(self, text: str) -> str:
        """`text` with stand-ins for the special tokens it spells."""
        return self._spelt.sub(lambda found: self._stand_ins[found[0]], text)

    def show(self, text: str) -> str:
        """The reverse, to show `text` to a person."""
        shown = self._hidden.sub(lambda found: self._texts[found[0]], text)
        return shown.replace(self._break, "")

    def deface(self, text: str) -> str:
        """`text` with every special token it spells broken, so that `hide` passes over it."""
        return self._spelt.sub(lambda found: found[0][0] + self._break + found[0][1:], text)

    def encode(self, text: str) -> Int32s:
        """Ids of a text with stand-ins. What spells a special token without being one is text."""
        found = encode_ids(self._tokenizer, text.replace(self._break, ""))
        return self._ids[found]

    def _plain_tokenizer(
        self, tokenizer: Tokenizer, special: Mapping[str, int]
    ) -> tuple[Tokenizer, Int32s]:
        """One that shares the model and has stand-ins for special tokens; real ids by its ids."""
        plain = Tokenizer(tokenizer.model)
        plain.normalizer = tokenizer.normalizer
        plain.pre_tokenizer = tokenizer.pre_tokenizer
        known = max(plain.get_vocab().values(), default=-1) + 1
        # The library numbers new tokens from the count of known ones; gaps would make them clash.
        gaps = known - plain.get_vocab_size()
        plain.add_special_tokens([f"{self._break}{gap}" for gap in range(gaps)])
        added = tokenizer.get_added_tokens_decoder()
        texts = {id_: self._stand_ins.get(token.content) for id_, token in added.items()}
        copies = {id_: _copy(token, texts[id_]) for id_, token in added.items()}
        plain.add_tokens(list(copies.values()))
        ids = np.arange(plain.get_vocab_size() + gaps, dtype=np.int32)
        for id_, copy in copies.items():
            ids[plain.token_to_id(copy.content)] = special.get(added[id_].content, id_)
        return plain, ids


def _copy(token: AddedToken, stand_in: str | None) -> AddedToken:
    return AddedToken(
        stand_in or token.content,
        single_word=token.single_word,
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        normalized=token.normalized and stand_in is None,
        special=token.special,
    )


def _any_of(texts: Mapping[str, str]) -> re.Pattern[str]:
    """Matches the longest of `texts` at a place; nothing at all when there are none."""
    longest_first = sorted(texts, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
