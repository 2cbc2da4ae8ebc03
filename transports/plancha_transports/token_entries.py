"""One entry a token for those who asked for log-probabilities, handed out along with its text."""

from collections import deque

import attrs

from plancha.contracts import TextStream
from plancha.streams.outbox import Delta
from plancha.streams.token_logprobs import TokenLogprob


@attrs.frozen
class TokenEntry:
    """A token of a prompt or an output, and the characters of the same text that come before it.

    `logprob` is None for the first token of a prompt: nothing comes before it.
    """

    token: int
    offset: int
    logprob: TokenLogprob | None


class EntryQueue:
    """The entries of one output: each waits until all of its token's text has been shown.

    A token that adds no character of its own (the first bytes of one, or a hidden special token)
    goes with the next character. An ending token that is hidden has no entry, as in OpenAI's API.
    Where a stop string cuts, the tokens that begin before the cut keep theirs, the last one whole;
    those that begin at the cut or later have none.
    """

    def __init__(self, text: TextStream) -> None:
        self._text = text  # like the output's own, but holds back nothing for stop strings
        self._decoded = 0  # characters
        self._shown = 0
        self._waiting: deque[tuple[int, TokenEntry]] = deque()  # by characters to be shown first
        self._ended_hidden = False

    def take(self, deltas: list[Delta]) -> tuple[TokenEntry, ...]:
        """The entries that go with the text of these deltas, which are the output's next."""
        for delta in deltas:
            self._shown += len(delta.text)
            if delta.hidden:
                self._ended_hidden = True
            elif delta.logprob is not None:
                self._append(delta.logprob)
        match deltas[-1].finish_reason:
            case None:
                return self._due()
            case "stop" if not self._ended_hidden:
                return tuple(each for _, each in self._waiting if each.offset < self._shown)
        return tuple(each for _, each in self._waiting)

    def _append(self, logprob: TokenLogprob) -> None:
        start = self._decoded
        self._decoded += len(self._text.push(logprob.token))
        entry = TokenEntry(logprob.token, start, logprob)
        self._waiting.append((max(self._decoded, start + 1), entry))

    def _due(self) -> tuple[TokenEntry, ...]:
        due = []
        while self._waiting and self._waiting[0][0] <= self._shown:
            due.append(self._waiting.popleft()[1])
        return tuple(due)
