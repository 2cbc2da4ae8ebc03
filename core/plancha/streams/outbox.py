"""The outbox of one sequence: ids that wait for their client, and their way to text."""

from collections.abc import Callable

import attrs

from plancha.contracts import TextStream
from plancha.failure import Failure, engine_error
from plancha.messages import (
    Cancel,
    Control,
    Finished,
    FinishReason,
    Int32s,
    Pause,
    Resume,
    Truncate,
)
from plancha.streams.token_logprobs import TokenLogprob


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
    text: str = attrs.field(repr=False)
    finish_reason: FinishReason | None = None
    logprob: TokenLogprob | None = None
    hidden: bool = False  # an eos or stop id that ended the stream


@attrs.define(eq=False)
class Stream:
    """Ids not yet turned into text, and how the stream ended.

    A client may be done with a stream before the worker is: `closed` is the client's end (a stop
    string matched), `finished` the worker's word. With `stop_strings` the worker's is not the last,
    however it came to it: it waits to be told how much was kept.
    """

    number: int
    index: int
    prompt: Int32s
    text: TextStream
    alternatives: int | None = None  # reported with each token; None: no log-probabilities
    plain: bool = False  # neither log-probabilities nor stop strings, and its text is not kept
    stop_strings: bool = False
    tokens: list[int] = attrs.field(factory=list)
    logprobs: list[TokenLogprob] = attrs.field(factory=list)  # of `tokens`, if asked for
    prompt_logprobs: list[TokenLogprob] = attrs.field(factory=list)  # from the second token on
    finished: Finished | None = None
    output_tokens: int = 0  # handed to the client so far
    closed: bool = False  # its end has been handed to the client
    settled: bool = False  # so is its request; until then nobody hears that it was cancelled
    paused_at: int = 0  # tokens that waited when it was paused; 0: it is not
    failure: Failure | None = None  # why it ended, if by an error

    @property
    def is_waited_for(self) -> bool:
        """Whether the worker computes it, or waits for its gateway's last word."""
        if self.finished is None or self.closed:
            return not self.closed
        return self.stop_strings and self.finished.reason != "cancelled"

    def take(self, most: int, send_control: Callable[[Control], None]) -> list[Delta]:
        """The next tokens, `most` at most, and the end behind the last; may send a `Truncate`."""
        tokens, logprobs, finished = self.tokens, self.logprobs, self.finished
        if finished is not None and finished.reason == "cancelled" and not self.settled:
            finished = None
        if len(tokens) <= most:
            self.tokens = []
        else:
            self.tokens, tokens, finished = tokens[most:], tokens[:most], None
        if logprobs:
            self.logprobs, logprobs = logprobs[len(tokens) :], logprobs[: len(tokens)]
        hidden = tokens.pop() if finished is not None and finished.hidden and tokens else None
        index, text = self.index, self.text
        deltas: list[Delta] = []
        for position, token in enumerate(tokens):
            logprob = logprobs[position] if logprobs else None
            deltas.append(Delta(index, token, text.push(token), None, logprob))
            if text.stopped:
                self._cut(position + 1, send_control)
                deltas.append(Delta(index, None, "", "stop"))
                return deltas
        self.output_tokens += len(tokens)
        if hidden is not None:
            self.output_tokens += 1
            logprob = logprobs[-1] if logprobs else None
            deltas.append(Delta(index, hidden, "", None, logprob, hidden=True))
        if finished is not None:
            self._close(finished, deltas, send_control)
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

    def _cut(self, tokens: int, send_control: Callable[[Control], None]) -> None:
        """A stop string ended with so many of those being taken."""
        self.output_tokens += tokens
        self.tokens, self.closed = [], True
        send_control(Truncate(self.number, self.output_tokens))

    def _close(
        self, finished: Finished, deltas: list[Delta], send_control: Callable[[Control], None]
    ) -> None:
        failed, waited_for = finished.reason == "error", self.is_waited_for
        self.closed = True
        if waited_for:
            all_of_it = Truncate(self.number, self.output_tokens)
            send_control(Cancel(self.number, "failed") if failed else all_of_it)
        if failed:
            self.failure = finished.failure or engine_error()
        else:
            deltas.append(Delta(self.index, None, self.text.finish(), finished.reason))
