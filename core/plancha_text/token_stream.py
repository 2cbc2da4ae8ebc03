"""One sequence's way from ids to text: bytes to characters, and stop strings."""

from codecs import utf_8_decode
from collections.abc import Iterable

import attrs

from plancha_text.stop_strings import StopMatcher


@attrs.frozen(eq=False)
class TokenTexts:
    """What each id adds to a stream. `whole[id]` is None where its bytes are not characters yet."""

    data: tuple[bytes, ...]
    whole: tuple[str | None, ...]

    @classmethod
    def of(cls, token_bytes: Iterable[bytes | None]) -> "TokenTexts":
        """By id; None and b"" add nothing."""
        data = tuple([part or b"" for part in token_bytes])
        return cls(data, tuple(map(_whole, data)))


def _whole(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


class TokenStream:
    """A `plancha.contracts.TextStream`.

    Its text is `bytes.decode("utf-8", "replace")` of the tokens' bytes, cut before the stop
    string. Never more than three bytes are held for a character to become whole.
    """

    __slots__ = ("_matcher", "_min_tokens", "_pending", "_texts", "_tokens")

    def __init__(self, texts: TokenTexts, stop: tuple[str, ...], min_tokens: int) -> None:
        self._texts = texts
        self._matcher = StopMatcher(stop) if stop else None
        self._min_tokens = min_tokens
        self._tokens = 0
        self._pending = b""  # the beginning of a character

    def push(self, token: int) -> str:
        """Text that can be shown now. Ids beyond the vocabulary add nothing."""
        matcher = self._matcher
        if matcher is None:
            return self._decode(token)
        if matcher.matched:
            return ""
        self._tokens += 1
        return matcher.push(self._decode(token), self._tokens >= self._min_tokens)

    @property
    def stopped(self) -> bool:
        """Whether a stop string matched."""
        return self._matcher is not None and self._matcher.matched

    def finish(self) -> str:
        """What was held back; an unfinished character is U+FFFD."""
        if self.stopped:
            return ""
        rest, self._pending = self._pending.decode("utf-8", "replace"), b""
        held = "" if self._matcher is None else self._matcher.finish()
        return held + rest

    def _decode(self, token: int) -> str:
        texts = self._texts
        if not 0 <= token < len(texts.data):
            return ""
        whole = texts.whole[token]
        if whole is not None and not self._pending:
            return whole
        data = self._pending + texts.data[token]
        text, decoded = utf_8_decode(data, "replace", False)
        self._pending = data[decoded:]
        return text
