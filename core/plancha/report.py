"""What gateways have to hear, gathered until the scheduling task sends it as one frame."""

import numpy as np

from plancha.messages import Finished, Frame, Int32s, Int64s, Load

NO_STREAMS: Int64s = np.empty(0, np.int64)
NO_TOKENS: Int32s = np.empty(0, np.int32)


class Report:
    """The content of the next `Frame`. A step's tokens are taken in once per frame at most."""

    def __init__(self) -> None:
        self._streams: Int64s = NO_STREAMS
        self._tokens: Int32s = NO_TOKENS
        self._joined: list[int] = []
        self._finished: list[Finished] = []

    def tokens(self, streams: Int64s, tokens: Int32s) -> None:
        """One step's tokens, in columns. Raises `RuntimeError` if the last step's were not sent."""
        if self._streams.size:
            raise RuntimeError("a frame holds the tokens of one step")
        self._streams, self._tokens = streams, tokens

    def joined(self, stream: int) -> None:
        """The stream's sequence entered the batch for the first time."""
        self._joined.append(stream)

    def finished(self, finished: Finished) -> None:
        """A stream ended."""
        self._finished.append(finished)

    def take_frame(self, load: Load) -> Frame | None:
        """All that was gathered since the last call, or None if that is nothing."""
        if not (self._streams.size or self._joined or self._finished):
            return None
        frame = Frame(self._streams, self._tokens, tuple(self._joined), tuple(self._finished), load)
        self._streams, self._tokens = NO_STREAMS, NO_TOKENS
        self._joined.clear()
        self._finished.clear()
        return frame
