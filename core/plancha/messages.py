"""Everything that crosses a channel: frozen, and one message a step, never one a token.

Gateway to worker (`Upstream`): `Submit`, `Controls` that hold what clients did, `Reload`, `Ask`.
Worker to gateway (`Downstream`): `Frame`, `Settled`, `Rejected`, `Answer`. Inside the worker:
`Admitted` from admission (`inbox`), `Plan` to execution and `StepDone` or `StepFailed` back
(`plans`). What concerns many sequences is held in columns (NumPy arrays of equal length), since
1,600 small objects a step cost more than the step's whole planning.
"""

from collections.abc import Mapping
from typing import Literal

import attrs
import numpy as np
import numpy.typing as npt

from plancha.failure import Failure
from plancha.record import Outcome, Record
from plancha.sampling import Sampling
from plancha.tenant import Tenant

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Float32s = npt.NDArray[np.float32]

FinishReason = Literal["stop", "length", "cancelled", "error"]


@attrs.frozen(kw_only=True, eq=False)
class InferenceRequest:
    """What was asked, in token ids. `n` sequences, and so `n` streams, per prompt.

    `namespace` is whose cached blocks it may share; the first `public_tokens[i]` tokens of prompt i
    are a prefix the operator declared public (empty: none are). `logprobs` is how many
    alternatives each output token is reported with, None for no report; `prompt_logprobs` reports
    the prompt's tokens too.

    `prompts` are non-empty int32 arrays of ids the vocabulary knows. `max_tokens` None means as
    many as context and pool hold; with `clamp` it is no more than that either, else it must fit.

    With `stop_strings` the gateway has the last word on how much of each output is kept: it answers
    a stream's end with `Truncate`, or with `Cancel` if it failed, unless it had cancelled it.
    `label`, `model` and `created_s` are for the ledger.
    """

    id: str
    tenant: str
    prompts: tuple[Int32s, ...]
    sampling: Sampling
    max_tokens: int | None
    n: int = 1
    timeout_s: float | None = None  # from acceptance to the last token; None: no deadline
    grammar: str | None = None  # JSON schema, as text, that the output must follow
    namespace: bytes = b""
    public_tokens: tuple[int, ...] = ()
    logprobs: int | None = None
    prompt_logprobs: bool = False
    clamp: bool = False
    max_tokens_param: str = "max_tokens"  # the field the caller wrote it in, for errors
    stop_strings: bool = False
    label: str | None = None  # the client's own id
    model: str = ""  # what clients call it
    created_s: float = 0.0  # wall clock, Unix seconds


@attrs.frozen(eq=False)
class Submit:
    """A request for the worker; `streams[i * n + j]` numbers output j of prompt i."""

    request: InferenceRequest
    streams: tuple[int, ...]


@attrs.frozen
class Cancel:
    """Nobody wants the rest of this stream. Unknown streams are ignored.

    `outcome` says why: its client left or says so, or takes nothing, or its gateway broke it off.
    """

    stream: int
    outcome: Literal["cancelled", "stalled", "failed"] = "cancelled"


@attrs.frozen
class Truncate:
    """The stream ends with its first `keep` output tokens.

    Either a stop string matched, or it had ended by itself and this is how much of it is kept (see
    `InferenceRequest`).
    """

    stream: int
    keep: int


@attrs.frozen
class Pause:
    """The stream's reader lags: it gives up its slot and goes on at `Resume`. May come twice."""

    stream: int


@attrs.frozen
class Resume:
    """The stream's reader is back. Nothing to do for a stream that was not paused."""

    stream: int


Control = Cancel | Truncate | Pause | Resume


@attrs.frozen
class Controls:
    """What clients did since the last of these, the newest per stream."""

    controls: tuple[Control, ...]


@attrs.frozen
class Reload:
    """The operator's file was read again: from here on these hold, for all of the worker.

    Each of them replaces what was there; a tenant that is not in `tenants` any more is anybody.
    Sequences that are already accepted keep their tier.
    """

    tenants: Mapping[str, Tenant]
    max_waiting: int  # sequences, of all tenants
    queue_timeout_s: float  # 0: no limit
    ttft_targets_s: Mapping[int, float]  # by tier


GatewayTopic = Literal["record", "cancel"]
"""What the gateway knows that a request's id names: how it is doing, and that after ending it."""

WorkerTopic = Literal["usage", "trace", "metrics", "live"]
"""What the worker knows: its ledger's record of a request, the planner's reasons, its figures, and
how it looks at this moment.
"""

Topic = Literal[GatewayTopic, WorkerTopic]


@attrs.frozen
class Ask:
    """A gateway's question to whoever knows: another gateway, by way of the worker, or the worker.

    `request_id` and `tenant` are whose request it is about, if it is about one.
    """

    number: int  # the asker's own, which the answer repeats
    request_id: str
    tenant: str
    topic: Topic = "record"
    any_tenant: bool = False  # an operator asks, who may know of everybody's


@attrs.frozen
class Answer:
    """What is known. All None: nothing, or it is another tenant's."""

    number: int
    record: Record | None = None  # for all that is a record
    content: bytes | None = None  # for all else, such as JSON or an exposition of metrics
    failure: Failure | None = None  # why it cannot be said now


Upstream = Submit | Controls | Reload | Ask


@attrs.frozen
class Rejected:
    """Admission refused the whole request; none of its sequences ever existed."""

    streams: tuple[int, ...]
    failure: Failure


@attrs.frozen
class Phases:
    """How long a sequence took over each, one after the other, in seconds; 0 where it never was."""

    queued_s: float = 0.0
    prefill_s: float = 0.0  # from its first place in the batch to its first token
    decode_s: float = 0.0


@attrs.frozen
class Finished:
    """One stream ended. Exactly one per stream of an accepted request, before its `Settled`.

    `prompt_tokens` counts what was prefilled, cached tokens included and replays after a preemption
    excluded; it is 0 for a prompt's outputs after the first, since a prompt is counted once.
    `output_tokens` are those sampled and kept, the ending eos or stop id included. `hidden` is true
    when the last token is such an id and has no text to show. `failure` is set when `reason` is
    "error".
    """

    stream: int
    reason: FinishReason
    prompt_tokens: int
    output_tokens: int
    hidden: bool = False
    failure: Failure | None = None
    phases: Phases = Phases()


@attrs.frozen
class Load:
    """How full the worker is after a step."""

    total_blocks: int
    free_blocks: int  # cached ones not counted
    running: int
    waiting: int
    cached_blocks: int = 0
    waste: float = 0.0  # share of the reserved token slots whose token is not known yet
    steps: int = 0  # that have ended, well or not
    ledger_writable: bool = True  # False: new requests are refused


@attrs.frozen
class Joined:
    """A stream's sequence entered the batch for the first time.

    `cached_tokens` of its prompt were found in the prefix cache; 0 for a prompt's outputs after the
    first, since a prompt is counted once.
    """

    stream: int
    cached_tokens: int


@attrs.frozen(eq=False)
class Logprobs:
    """Log-probabilities of tokens, one row each, by the model's own distribution.

    That is before temperature, penalties and filters; natural logarithm. Row i: `chosen[i]` of the
    token itself, and the best `top_ids[i]` with their `top[i]`, best first. Rows whose sequence did
    not ask hold anything.
    """

    chosen: Float32s  # [rows]
    top_ids: Int32s  # [rows, most alternatives anyone asked for]
    top: Float32s  # [rows, the same]

    def rows(self, which: Bools | slice) -> "Logprobs":
        """Only those rows."""
        return Logprobs(self.chosen[which], self.top_ids[which], self.top[which])


@attrs.frozen(eq=False)
class PromptLogprobs:
    """Of a stretch of one prompt: row i is about the token at position `start + i`, from 1 on."""

    stream: int
    start: int
    logprobs: Logprobs


@attrs.frozen(kw_only=True)
class Bill:
    """What a request came to, as its row in the ledger says. Counts are those of `Counts` there."""

    streams: tuple[int, ...]
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    outcome: Outcome
    finished_s: float  # wall clock, Unix seconds


@attrs.frozen
class Settled:
    """These requests' rows are durable, and their clients may hear that they have ended.

    Nothing follows about their streams. Should the ledger not be writable, it is said all the same,
    since no client waits for long; the rows are written later.
    """

    bills: tuple[Bill, ...]


@attrs.frozen(eq=False)
class Frame:
    """What one step, or one round of controls, means to a gateway.

    `streams` and `tokens` are columns: token `tokens[i]` is the next of stream `streams[i]`; a
    stream appears at most once. `logprobs`, if anybody asked, has a row for each.
    """

    streams: Int64s
    tokens: Int32s
    joined: tuple[Joined, ...]
    finished: tuple[Finished, ...]
    load: Load
    logprobs: Logprobs | None = None
    prompt_logprobs: tuple[PromptLogprobs, ...] = ()


Downstream = Frame | Settled | Rejected | Answer

ToWorker = Upstream | Answer
"""What a gateway's link takes; questions between gateways go no further than the links."""

ToGateway = Downstream | Ask
"""What a gateway's link brings."""
