"""One running generation: exists while it runs, owned by the scheduling task alone."""

import attrs
import numpy as np

from plancha.messages import InferenceRequest, Int32s


@attrs.define(eq=False, kw_only=True)
class Sequence:
    """A prompt and what has been generated from it.

    While the sequence is in the batch its lengths live in the batch's columns; `token_ids` here is
    brought up to date when it leaves (preempted or finished). `blocks` is its block table: the
    allocator appends and clears it, everyone else reads.
    """

    request: InferenceRequest
    stream: int
    arrival: int  # serial number in order of acceptance
    arrived_s: float  # monotonic clock
    prompt_tokens: int
    token_ids: Int32s  # prompt and output so far
    max_length: int  # prompt and output together
    stop_ids: tuple[int, ...]
    seed: int
    slot: int | None = None  # its place in the batch; None while it waits
    blocks: list[int] = attrs.field(factory=list)
    preemptions: int = 0
    prefilled: int = 0  # prompt tokens computed so far, replays excluded

    @property
    def tenant(self) -> str:
        """The tenant whose request this is."""
        return self.request.tenant

    @property
    def tokens(self) -> int:
        """Known tokens when last out of the batch: what a return has to compute."""
        return int(np.size(self.token_ids))
