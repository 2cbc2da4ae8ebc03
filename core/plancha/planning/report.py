"""What gateways have to hear, gathered until the scheduling task sends it as one frame."""

from collections.abc import Iterable
from collections.abc import Sequence as Seq

import numpy as np

from plancha.messages import Finished, Frame, Int32s, Int64s, Joined, Load, Logprobs, PromptLogprobs
from plancha.sequence import Sequence

NO_STREAMS: Int64s = np.empty(0, np.int64)
NO_TOKENS: Int32s = np.empty(0, np.int32)


class Report:
    """The content of the next `Frame`. A step's tokens are taken in once per frame at most."""

    def __init__(self) -> None:
        self._streams: Int64s = NO_STREAMS
        self._tokens: Int32s = NO_TOKENS
        self._logprobs: Logprobs | None = None
        self._prompts: list[PromptLogprobs] = []
        self._joined: list[Joined] = []
        self._finished: list[Finished] = []
        self._steps, self._writable = 0, True  # as the last frame told of them

    def tokens(self, streams: Int64s, tokens: Int32s, logprobs: Logprobs | None) -> None:
        """One step's tokens, in columns. Raises `RuntimeError` if the last step's were not sent."""
        if self._streams.size:
            raise RuntimeError("a frame holds the tokens of one step")
        self._streams, self._tokens, self._logprobs = streams, tokens, logprobs

    def prompts(self, parts: Iterable[PromptLogprobs], by_slot: Seq[Sequence | None]) -> None:
        """Log-probabilities of prompt tokens, named by slot as the executor knows them.

        Each position is told once, however often it was computed.
        """
        for part in parts:
            sequence = by_slot[part.stream]
            if sequence is None:
                continue
            end = min(part.start + part.logprobs.chosen.size, sequence.prompt_tokens)
            start = max(part.start, sequence.prompt_reported)
            if start < end:
                rows = part.logprobs.rows(slice(start - part.start, end - part.start))
                self._prompts.append(PromptLogprobs(sequence.stream, start, rows))
                sequence.prompt_reported = end

    def joined(self, stream: int, cached_tokens: int) -> None:
        """The stream's sequence entered the batch for the first time."""
        self._joined.append(Joined(stream, cached_tokens))

    def finished(self, finished: Finished) -> None:
        """A stream ended."""
        self._finished.append(finished)

    def take_frame(self, load: Load) -> Frame | None:
        """All that was gathered since the last call, or None if that is nothing: of a step at
        least that it has ended, and of the ledger whether it can be written.
        """
        same = load.steps == self._steps and load.ledger_writable == self._writable
        if same and not (self._streams.size or self._joined or self._finished or self._prompts):
            return None
        self._steps, self._writable = load.steps, load.ledger_writable
        frame = Frame(
            self._streams,
            self._tokens,
            tuple(self._joined),
            tuple(self._finished),
            load,
            self._logprobs,
            tuple(self._prompts),
        )
        self._streams, self._tokens, self._logprobs = NO_STREAMS, NO_TOKENS, None
        self._joined.clear()
        self._finished.clear()
        self._prompts.clear()
        return frame
