"""One running generation: exists while it runs, owned by the scheduling task alone."""

import attrs

from plancha.messages import InferenceRequest, Int32s, Phases
from plancha.traces.trace import Trace


@attrs.define(eq=False)
class Turn:
    """Whether a request's turn has come. All of its sequences have this one in common."""

    come: bool = False  # one of them has been in the batch


@attrs.define(eq=False, kw_only=True)
class Sequence:
    """A prompt and what has been generated from it.

    While the sequence is in the batch its lengths live in the batch's columns, and `token_ids` is
    its whole row there, of which the first `length` are known; `length` and `computed` here are
    brought up to date when it leaves. `blocks` is its block table and `host_blocks` where a
    swapped-out one waits: the allocator changes them, everyone else reads.
    """

    request: InferenceRequest
    stream: int
    arrival: int  # serial number in order of acceptance
    arrived_s: float  # monotonic clock
    prompt_tokens: int
    token_ids: Int32s  # prompt and output
    length: int  # of them known
    max_length: int  # prompt and output together
    stop_ids: tuple[int, ...]
    seed: int
    tier: int = 0  # the tenant's; lower goes first
    public_tokens: int = 0  # leading tokens that anybody may share
    turn: Turn = attrs.field(factory=Turn)
    parent: "Sequence | None" = None  # the first output of the same prompt
    slot: int | None = None  # its place in the batch; None while it waits
    computed: int = 0  # tokens whose K and V its blocks, or its host blocks, hold
    blocks: list[int] = attrs.field(factory=list)
    host_blocks: list[int] = attrs.field(factory=list)
    committed_blocks: int = 0  # leading ones of `blocks` that others can find
    block_hashes: list[bytes] = attrs.field(factory=list)  # of its leading full blocks
    joined_once: bool = False
    preemptions: int = 0
    paused: bool = False  # its reader lags: it is not to run
    passed: int = 0  # others that joined past it, since it was first of the line and did not fit
    passed_since_s: float | None = None
    prompt_reported: int = 1  # prompt positions whose log-probability was sent; the first has none
    prefilled: int = 0  # prompt tokens computed so far, replays excluded
    joined_s: float = 0.0  # when it entered the batch for the first time
    first_token_s: float | None = None
    last_token_s: float | None = None  # before it left the batch; None: its reader paused it
    trace: Trace = attrs.field(factory=Trace)

    def phases(self, now: float) -> Phases:
        """How its time was spent, if it ends now."""
        if not self.joined_once:
            return Phases(now - self.arrived_s)
        queued_s = self.joined_s - self.arrived_s
        if self.first_token_s is None:
            return Phases(queued_s, now - self.joined_s)
        return Phases(queued_s, self.first_token_s - self.joined_s, now - self.first_token_s)

    @property
    def tenant(self) -> str:
        """The tenant whose request this is."""
        return self.request.tenant

    @property
    def begun(self) -> bool:
        """Whether its request's turn has come.

        What is left of such an answer waits, but is neither shed nor timed out by the queue: that
        would break off what is being computed already.
        """
        return self.turn.come
