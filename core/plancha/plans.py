"""What the planner and the executor tell each other: one step, and what it drew."""

from collections.abc import Mapping

import attrs
import numpy as np

from plancha.messages import Bools, Int32s, Logprobs, PromptLogprobs
from plancha.sampling import Sampling


@attrs.frozen(eq=False)
class Join:
    """A sequence that enters the batch at `slot`, for the first time or after a preemption.

    `token_ids` (int32) are all known ids, the first `prompt_tokens` of them the prompt, so that
    penalties see generated tokens as generated. `stop_ids` are masked until `sampling.min_tokens`
    tokens exist. `seed` is fixed for the sequence's whole life: output token i is drawn from
    (seed, i) alone. `grammar` is a JSON schema that the output follows, its known part too; only
    executors with `Geometry.grammars` are given any. Nothing that is kept of one `namespace` may
    make another's faster.
    """

    slot: int
    stream: int
    token_ids: Int32s
    prompt_tokens: int
    stop_ids: tuple[int, ...]
    seed: int
    sampling: Sampling
    logprobs: int | None = None
    prompt_logprobs: bool = False
    grammar: str | None = None
    namespace: bytes = b""


@attrs.frozen(eq=False)
class Moves:
    """Copies of whole KV blocks that go before a step, in this order; int32 columns in pairs.

    Device to host (`out_blocks` to `out_hosts`), device to device, host to device. A block may be
    read by one kind and written by a later one; within a kind no block is both.
    """

    out_blocks: Int32s
    out_hosts: Int32s
    copied_from: Int32s
    copied_to: Int32s
    in_hosts: Int32s
    in_blocks: Int32s


NO_MOVES = Moves(*[np.empty(0, np.int32)] * 6)


@attrs.frozen(eq=False)
class Plan:
    """One step, immutable. The executor keeps its own block tables and token ids from the deltas.

    Apply in this order: `moves`, `left` (slots now empty), `joins`, then the grown blocks: entry
    `index` of the block table of `slot` is `block` (three int32 columns). Rows of a sequence that
    joins begin where its computed tokens end. Then compute, for every row r, the
    tokens at positions `starts[r]` to `starts[r] + counts[r] - 1` of slot `slots[r]`; rows with
    `samples[r]` then draw the token at position `starts[r] + counts[r]`, which the executor also
    stores as that slot's next token.
    """

    number: int
    moves: Moves
    left: Int32s
    joins: tuple[Join, ...]
    grown_slots: Int32s
    grown_index: Int32s
    grown_blocks: Int32s
    slots: Int32s
    starts: Int32s
    counts: Int32s
    samples: Bools


@attrs.frozen(eq=False)
class StepDone:
    """The tokens a step drew, in columns, and which sequences failed in it.

    `failed` are slots whose own part of the step went wrong; they have no token in the columns.
    `logprobs` has a row for each of `slots` if any of them asked; `prompt_logprobs` are named by
    slot in the place of `stream`, and cover every prompt position the step computed for those who
    asked.
    `timings` splits `seconds` by what was done ("products", "attention", "sampling", …).
    """

    number: int
    slots: Int32s
    tokens: Int32s
    failed: tuple[int, ...] = ()
    logprobs: Logprobs | None = None
    prompt_logprobs: tuple[PromptLogprobs, ...] = ()
    seconds: float = 0.0
    timings: Mapping[str, float] = attrs.field(factory=dict)


@attrs.frozen
class StepFailed:
    """The whole step raised; every sequence in it ends with an error and the pool is made anew."""

    number: int
