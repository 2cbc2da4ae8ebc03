"""What text completions and chat completions word differently."""

from collections.abc import Mapping
from typing import Any, Protocol

from plancha.messages import FinishReason
from plancha_transports.echo import Echo
from plancha_transports.logprob_objects import TokenBytes, chat_logprobs, text_logprobs
from plancha_transports.token_entries import TokenEntry

Entries = tuple[TokenEntry, ...] | None
"""None: there is nothing to tell about log-probabilities."""


class Shape(Protocol):
    """The choices of one kind of answer."""

    whole_name: str
    chunk_name: str

    def choice(
        self, index: int, text: str, entries: Entries, finish_reason: FinishReason | None
    ) -> dict[str, Any]:
        """A choice of a whole answer."""
        ...

    def part(
        self, index: int, text: str, entries: Entries, finish_reason: FinishReason | None
    ) -> dict[str, Any]:
        """A choice of a chunk: some text, or the end and no text."""
        ...

    def opening(self, index: int) -> dict[str, Any] | None:
        """A choice that comes before the first text of `index`, if there is one."""
        ...


class TextShape:
    """Of `/v1/completions`. With an `echo` the prompts are part of the text."""

    whole_name = "text_completion"
    chunk_name = "text_completion"

    def __init__(self, token_bytes: TokenBytes, echo: Echo | None) -> None:
        self._token_bytes = token_bytes
        self._echo = echo

    def choice(
        self, index: int, text: str, entries: Entries, finish_reason: FinishReason | None
    ) -> dict[str, Any]:
        """The opening and the output as one."""
        whole = self.part(index, text, entries, finish_reason)
        opening = self.opening(index)
        if opening is not None:
            whole["text"] = opening["text"] + text
            if entries is not None:
                for name, found in opening["logprobs"].items():
                    whole["logprobs"][name] = found + whole["logprobs"][name]
        return whole

    def part(
        self, index: int, text: str, entries: Entries, finish_reason: FinishReason | None
    ) -> dict[str, Any]:
        """Some of the output; offsets count from the beginning of the echo."""
        before = 0 if self._echo is None else len(self._echo.text(index))
        return self._object(index, text, entries, before, finish_reason)

    def opening(self, index: int) -> dict[str, Any] | None:
        """The echo."""
        if self._echo is None:
            return None
        return self._object(index, self._echo.text(index), self._echo.entries(index), 0, None)

    def _object(
        self,
        index: int,
        text: str,
        entries: Entries,
        characters_before: int,
        finish_reason: FinishReason | None,
    ) -> dict[str, Any]:
        logprobs = None
        if entries is not None:
            logprobs = text_logprobs(entries, self._token_bytes, characters_before)
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}


class ChatShape:
    """Of `/v1/chat/completions`."""

    whole_name = "chat.completion"
    chunk_name = "chat.completion.chunk"

    def __init__(self, token_bytes: TokenBytes) -> None:
        self._token_bytes = token_bytes

    def choice(
        self, index: int, text: str, entries: Entries, finish_reason: FinishReason | None
    ) -> dict[str, Any]:
        """A message of the assistant."""
        message = {"role": "assistant", "content": text, "refusal": None}
        return self._object(index, "message", message, entries, finish_reason)

    def part(
        self, index: int, text: str, entries: Entries, finish_reason: FinishReason | None
    ) -> dict[str, Any]:
        """A delta; the last one is empty."""
        delta = {"content": text} if text else {}
        return self._object(index, "delta", delta, entries, finish_reason)

    def opening(self, index: int) -> dict[str, Any] | None:
        """The role."""
        return self._object(index, "delta", {"role": "assistant", "content": ""}, None, None)

    def _object(
        self,
        index: int,
        name: str,
        message: Mapping[str, Any],
        entries: Entries,
        finish_reason: FinishReason | None,
    ) -> dict[str, Any]:
        logprobs = None if entries is None else chat_logprobs(entries, self._token_bytes)
        return {"index": index, name: message, "logprobs": logprobs, "finish_reason": finish_reason}
