"""One request as its client sees it: ids come in by frames, text goes out to whoever takes it."""

import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Literal, Self

import anyio
import attrs
import structlog

from plancha.failure import STALLED, Failure, RequestFailed, engine_error
from plancha.messages import Bill, Cancel, Control
from plancha.record import Record
from plancha.spans import Span
from plancha.streams.outbox import Delta, Stream
from plancha.streams.transcript import Transcript

log = structlog.get_logger()

Sink = Callable[[], None]
"""Called on the event loop when a generation has `more`, once however much came since."""


def _only_plain(generation: "Generation") -> Stream | None:
    streams = generation.streams
    return streams[0] if len(streams) == 1 and streams[0].plain else None


@attrs.define(eq=False)
class Generation:
    """The streams of one request, until each has ended and the request is settled.

    There are two ways to have its `Delta`s. Iterate, to wait for lists of at least one; or `attach`
    a sink that is called when there is `more`, and `take` what came: no task wakes up for a token
    then. Either raises `RequestFailed` when the request was refused or broke off; deltas that came
    before stay valid. Use as an async context manager: leaving it early cancels what still runs.
    """

    record: Record
    streams: tuple[Stream, ...]
    _send_control: Callable[[Control], None]
    transcript: Transcript | None = None  # of a tenant whose texts are kept
    span: Span | None = None  # where requests are traced
    more: bool = False  # `take` has something to give, or to say
    ended: bool = False  # everything has been taken, or it broke off
    queued: bool = False  # for its turn to be woken
    _sink: Sink | None = None
    _flush: Sink | None = None
    _news: anyio.Event | None = None  # somebody iterates and waits
    _failure: Failure | None = None  # ends the request at once
    _plain: Stream | None = attrs.field(  # the only one, if it is
        default=attrs.Factory(_only_plain, takes_self=True), init=False
    )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._sink = self._flush = None
        if not self.ended:
            self.cancel()
        if self.transcript is not None:
            self.transcript.end(self.record, self.streams)

    def cancel(self) -> None:
        """Stop every stream still running; each then ends with finish reason "cancelled"."""
        outcome = _outcome(self._failure)
        for stream in self.streams:
            if stream.is_waited_for:
                self._send_control(Cancel(stream.number, outcome))

    def settle(self, bill: Bill) -> None:
        """What it came to is written down: once all was taken, the request has ended."""
        record = self.record
        record.state, record.outcome = "done", bill.outcome
        record.input_tokens, record.output_tokens = bill.input_tokens, bill.output_tokens
        record.cached_tokens, record.finished = bill.cached_tokens, int(bill.finished_s)
        for stream in self.streams:
            stream.settled = True

    def attach(self, sink: Sink, flush: Sink | None = None) -> None:
        """Have `sink` called whenever there is `more` from now on, until the context is left.

        `flush` is called after it, when the sinks of all that are woken together have been. Neither
        may block. If one raises, this request alone is aborted.
        """
        self._sink, self._flush = sink, flush

    def wake(self) -> None:
        """Tell whoever takes the deltas that there are more."""
        self.more = True
        if self._sink is not None:
            try:
                self._sink()
            except Exception:
                self._sink_failed()
        elif self._news is not None:
            self._news.set()

    def flush(self) -> None:
        """After `wake`, when all that were to be woken with it have been."""
        if self._flush is not None:
            try:
                self._flush()
            except Exception:
                self._sink_failed()

    def fail(self, failure: Failure) -> None:
        """End the whole request with `failure`, after the tokens that already came."""
        self._failure = self._failure or failure
        self.wake()
        self.flush()

    def abort(self, failure: Failure) -> None:
        """End the whole request with `failure` now; what has not been taken is dropped."""
        self._failure = self._failure or failure
        self._sink = self._flush = None
        self.cancel()
        for stream in self.streams:
            stream.tokens, stream.logprobs, stream.closed = [], [], True
        self.more = self.ended = True

    def hold(self, most: int) -> None:
        """Nobody takes: pause each stream of which `most` tokens wait, until they are taken."""
        for stream in self.streams:
            stream.hold(most, self._send_control)

    def take(self, most: int = sys.maxsize) -> list[Delta]:
        """What came since, `most` tokens of each stream at most; [] when that is nothing.

        Raises `RequestFailed`, however often it is asked, once there is nothing left but that.
        """
        deltas: list[Delta] = []
        left, over = False, True
        try:
            for stream in self.streams:
                if stream.closed:
                    continue
                if stream.tokens or stream.finished is not None:
                    before = stream.output_tokens
                    deltas += stream.take(most, self._send_control)
                    self._count(stream.output_tokens - before)
                    left = left or bool(stream.tokens)
                over = over and stream.closed
        except Exception:  # a detokeniser's bug is this request's trouble alone
            log.exception("text_stream_failed", request=self.record.id)
            self._failure = self._failure or engine_error()
        if self.transcript is not None:
            self.transcript.add(deltas)
        over = over and all(stream.settled for stream in self.streams)
        failure = self._failure or (self._broken() if over else None)
        self.more = failure is not None or (bool(deltas) and (left or over))
        if not deltas:
            self._settle(over, failure)
        return deltas

    def take_one(self) -> tuple[int, str] | None:
        """The next token and its text when that is all there is to take; None: `take_plain` may.

        Most steps of most requests are so. Raises what the detokeniser raises.
        """
        stream = self._plain
        if stream is None or len(stream.tokens) != 1 or not self._only_tokens(stream):
            return None
        self.more = False
        stream.output_tokens += 1
        self.record.output_tokens += 1
        token = stream.tokens.pop()
        return token, stream.text.push(token)

    def take_plain(self, most: int) -> tuple[Sequence[int], Sequence[str]] | None:
        """The next tokens and their texts when that is all there is to take, and no more than most.

        None: `take` knows more, at twice the cost. Raises what the detokeniser raises.
        """
        stream = self._plain
        if stream is None or not 0 < len(stream.tokens) <= most or not self._only_tokens(stream):
            return None
        self.more = False
        tokens, stream.tokens = stream.tokens, []
        stream.output_tokens += len(tokens)
        self.record.output_tokens += len(tokens)
        return tokens, list(map(stream.text.push, tokens))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Delta]:
        while True:
            deltas = self.take()
            if deltas:
                return deltas
            if self.ended:
                raise StopAsyncIteration
            self._news = anyio.Event()  # costly to make: only when there is nothing to hand out
            await self._news.wait()

    def _count(self, tokens: int) -> None:
        if self.record.state != "done":
            self.record.output_tokens += tokens

    def _only_tokens(self, stream: Stream) -> bool:
        return stream.finished is None and not stream.paused_at and self._failure is None

    def _sink_failed(self) -> None:
        log.exception("sink_failed", request=self.record.id)
        self.abort(engine_error())

    def _broken(self) -> Failure | None:
        """Of a stream that broke off while the others went on."""
        return next((each.failure for each in self.streams if each.failure is not None), None)

    def _settle(self, over: bool, failure: Failure | None) -> None:
        """Nothing is left to hand out: the request has ended if it is over or failed."""
        if failure is not None and not self.ended:
            self.cancel()
        self.ended = over or failure is not None
        if failure is not None:
            raise RequestFailed(failure)


def _outcome(failure: Failure | None) -> Literal["cancelled", "stalled", "failed"]:
    """How to call a request that ends early, for this reason; None: its client has left."""
    if failure is None or failure.kind == "cancelled":
        return "cancelled"
    return "stalled" if failure.code == STALLED else "failed"
