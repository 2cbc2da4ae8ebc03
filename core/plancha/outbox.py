"""The outbox of one sequence: ids that wait for their client, and their way to text."""

from collections.abc import Callable

import attrs

from plancha.contracts import TextStream
from plancha.failure import Failure, engine_error
from plancha.messages import Control, Finished, FinishReason, Int32s, Pause, Resume, Truncate
from plancha.token_logprobs import TokenLogprob


@attrs.define
class Delta:
    """What one token, or the end of one stream, adds.

    `index` is the output's: prompt i has the n outputs from i * n on. `token` is None at the end of
    the stream, and only there `finish_reason` is set; `text` there is what had been held back. A
    token whose text is still undecided, or that is `hidden` (an ending eos), has text "". `logprob`
    comes with every token if it was asked for.
    """

    index: int
    token: int | None
    text: str
    finish_reason: FinishReason | None = None
    logprob: TokenLogprob | None = None
    hidden: bool = False  # an eos or stop id that ended the stream


@attrs.define(eq=False)
class Stream:
    """Ids not yet turned into text, and how the stream ended.

    A client may be done with a stream before the worker is: `closed` is the client's end (a stop
    string matched), `finished` the worker's word.
    """

    number: int
    index: int
    prompt: Int32s
    text: TextStream
    alternatives: int | None = None  # reported with each token; None: no log-probabilities
    tokens: list[int] = attrs.field(factory=list)
    logprobs: list[TokenLogprob] = attrs.field(factory=list)  # of `tokens`, if asked for
    prompt_logprobs: list[TokenLogprob] = attrs.field(factory=list)  # from the second token on
    finished: Finished | None = None
    output_tokens: int = 0  # handed to the client so far
    keep: int | None = None  # output tokens up to a stop string's match
    closed: bool = False  # its end has been handed to the client
    paused_at: int = 0  # tokens that waited when it was paused; 0: it is not
    failure: Failure | None = None  # why it ended, if by an error

    def take(self, most: int, send_control: Callable[[Control], None]) -> list[Delta]:
        """The next tokens, `most` at most, and the end behind the last; may send a `Truncate`."""
        tokens, logprobs = self._next(most)
        finished = None if self.tokens else self.finished
        hidden = finished is not None and finished.hidden
        self.output_tokens += len(tokens)
        deltas: list[Delta] = []
        for position, token in enumerate(tokens):
            logprob = logprobs[position] if logprobs else None
            if hidden and position == len(tokens) - 1:
                deltas.append(Delta(self.index, token, "", None, logprob, hidden=True))
                break
            deltas.append(Delta(self.index, token, self.text.push(token), None, logprob))
            if self.text.stopped:
                self.output_tokens += position + 1 - len(tokens)
                self.keep = self.output_tokens
                send_control(Truncate(self.number, self.keep))
                self.closed = True
                self.tokens = []
                deltas.append(Delta(self.index, None, "", "stop"))
                return deltas
        if finished is not None:
            self.closed = True
            if finished.reason == "error":
                self.failure = finished.failure or engine_error()
            else:
                deltas.append(Delta(self.index, None, self.text.finish(), finished.reason))
        elif self.paused_at and self.finished is None and len(self.tokens) * 2 < self.paused_at:
            self.paused_at = 0
            send_control(Resume(self.number))
        return deltas

    def hold(self, most: int, send_control: Callable[[Control], None]) -> None:
        """Nobody takes them: pause it if `most` wait, until less than half of them do."""
        running = self.finished is None and not self.closed
        if running and not self.paused_at and len(self.tokens) >= most:
            self.paused_at = len(self.tokens)
            send_control(Pause(self.number))

    def _next(self, most: int) -> tuple[list[int], list[TokenLogprob]]:
        tokens, logprobs = self.tokens, self.logprobs
        if len(tokens) <= most:
            self.tokens, self.logprobs = [], []
            return tokens, logprobs
        self.tokens, self.logprobs = tokens[most:], logprobs[most:]
        return tokens[:most], logprobs[:most]
