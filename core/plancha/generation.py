"""One request as its client sees it: ids come in by frames, text goes out by iterating."""

from collections.abc import Callable
from types import TracebackType
from typing import Self

import anyio
import attrs
import numpy as np
import structlog

from plancha.contracts import TextStream
from plancha.failure import Failure, RequestFailed, engine_error
from plancha.messages import (
    Cancel,
    Control,
    Finished,
    FinishReason,
    Int32s,
    Logprobs,
    Truncate,
)
from plancha.record import Record

log = structlog.get_logger()

LEAST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON has no number for."""


@attrs.frozen
class TokenLogprob:
    """One token's log-probability, and the best tokens in its place with theirs, best first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


def token_logprobs(tokens: Int32s, logprobs: Logprobs, alternatives: int) -> list[TokenLogprob]:
    """Columns as one object a token, floored at `LEAST_LOGPROB`."""
    chosen = np.maximum(np.nan_to_num(logprobs.chosen, nan=LEAST_LOGPROB), LEAST_LOGPROB)
    top = np.maximum(np.nan_to_num(logprobs.top, nan=LEAST_LOGPROB), LEAST_LOGPROB)
    return [
        TokenLogprob(token, logprob, tuple(zip(ids, best, strict=True)))
        for token, logprob, ids, best in zip(
            tokens.tolist(),
            chosen.tolist(),
            logprobs.top_ids[:, :alternatives].tolist(),
            top[:, :alternatives].tolist(),
            strict=True,
        )
    ]


@attrs.frozen
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
    """The outbox of one sequence: ids not yet turned into text, and how the stream ended.

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


class Generation:
    """Iterate to get lists of `Delta`, at least one in each, until every stream has ended.

    Use as an async context manager: leaving it early cancels what still runs. Raises
    `RequestFailed` when the request was refused or broke off; deltas that came before stay valid.
    """

    def __init__(
        self,
        record: Record,
        streams: tuple[Stream, ...],
        send_control: Callable[[Control], None],
    ) -> None:
        self.record = record
        self.streams = streams
        self._send_control = send_control
        self._wake = anyio.Event()
        self._failure: Failure | None = None  # ends the request at once
        self._broken: Failure | None = None  # one stream's end; the others go on
        self._ended = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._ended:
            self.cancel()

    def cancel(self) -> None:
        """Stop every stream still running; each then ends with finish reason "cancelled"."""
        for stream in self.streams:
            if stream.finished is None and not stream.closed:
                self._send_control(Cancel(stream.number))

    def close_record(self) -> bool:
        """Once the worker has ended every stream: the counts it answers for, and the outcome."""
        ends = [stream.finished for stream in self.streams if stream.finished is not None]
        if len(ends) < len(self.streams):
            return False
        record = self.record
        record.state = "done"
        record.input_tokens = sum(end.prompt_tokens for end in ends)
        record.output_tokens = sum(
            end.output_tokens if stream.keep is None else min(stream.keep, end.output_tokens)
            for stream, end in zip(self.streams, ends, strict=True)
        )
        reasons = {end.reason for end in ends}
        if "error" in reasons or self._failure is not None:
            record.outcome = "failed"
        else:
            record.outcome = "cancelled" if "cancelled" in reasons else "completed"
        return True

    def wake(self) -> None:
        """Tell the client's task that an outbox has changed."""
        self._wake.set()

    def fail(self, failure: Failure) -> None:
        """End the whole request with `failure`, after the tokens that already came."""
        self._failure = self._failure or failure
        self.wake()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Delta]:
        while True:
            deltas = self._drain()
            if deltas:
                return deltas
            self._settle()
            self._wake = anyio.Event()  # costly to make: only when there is nothing to hand out
            await self._wake.wait()

    def _drain(self) -> list[Delta]:
        deltas: list[Delta] = []
        try:
            for stream in self.streams:
                if not stream.closed and (stream.tokens or stream.finished is not None):
                    self._drain_stream(stream, deltas)
        except Exception:  # a detokeniser's bug is this request's trouble alone
            log.exception("text_stream_failed", request=self.record.id)
            self.fail(engine_error())
        if self.record.state != "done":
            self.record.output_tokens = sum(stream.output_tokens for stream in self.streams)
        return deltas

    def _drain_stream(self, stream: Stream, deltas: list[Delta]) -> None:
        tokens, stream.tokens = stream.tokens, []
        none: list[TokenLogprob | None] = [None] * len(tokens)
        logprobs, stream.logprobs = stream.logprobs or none, []
        finished = stream.finished
        pairs = zip(tokens, logprobs, strict=True)
        for position, (token, logprob) in enumerate(pairs, start=1):
            stream.output_tokens += 1
            if finished is not None and finished.hidden and position == len(tokens):
                deltas.append(Delta(stream.index, token, "", None, logprob, hidden=True))
                break
            deltas.append(Delta(stream.index, token, stream.text.push(token), None, logprob))
            if stream.text.stopped:
                stream.keep = stream.output_tokens
                self._send_control(Truncate(stream.number, stream.keep))
                self.close_record()  # the worker may have ended it before this was read
                stream.closed = True
                deltas.append(Delta(stream.index, None, "", "stop"))
                return
        if finished is not None:
            stream.closed = True
            if finished.reason == "error":
                self._broken = self._broken or finished.failure or engine_error()
            else:
                deltas.append(Delta(stream.index, None, stream.text.finish(), finished.reason))

    def _settle(self) -> None:
        """Nothing is left to hand out: end the iteration if the request is over.

        Raises `RequestFailed` or `StopAsyncIteration` when it is, however often it is asked.
        """
        over = all(stream.closed for stream in self.streams)
        failure = self._failure or (self._broken if over else None)
        if failure is not None:
            self.cancel()
        self._ended = over or failure is not None
        if failure is not None:
            raise RequestFailed(failure)
        if over:
            raise StopAsyncIteration
