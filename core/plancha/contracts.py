"""What plugins promise the kernel, and the kernel them. Nothing to inherit: match the shape.

An entry point (`plancha.schedulers`, `.allocators`, `.executors`, `.transports`) names a callable
`(options, site) -> plugin`: `options` is its table from the TOML, unchecked (use
`plancha.options.structure`), `site` what the deployment has fixed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Sequence as Seq
from enum import Enum
from typing import Any, Protocol

import attrs

from plancha.messages import Int32s, Reload
from plancha.plans import Moves, Plan, StepDone
from plancha.sequence import Sequence
from plancha.startup import Stage
from plancha.tenant import ANYBODY as ANYBODY
from plancha.tenant import Tenant as Tenant

CONTRACT = 1
"""Version of this file's promises; a plugin written for another is refused by name."""

Clock = Callable[[], float]
"""Seconds on a monotonic clock."""


LIVE = attrs.setters.NO_OP
"""Marks what of a `Site` may change while the server runs."""


@attrs.define(kw_only=True, on_setattr=attrs.setters.frozen)
class Site:
    """What the deployment has fixed before a plugin is made.

    All is frozen but what an operator may change without a restart: `tenants`, `max_waiting`,
    `queue_timeout_s` and `ttft_targets_s`. Those change in `reload`, between two steps; ask for
    them when they are needed, and keep no copy.
    """

    max_sequences: int  # batch slots
    max_batched_tokens: int  # tokens computed in one step at most
    max_waiting: int = attrs.field(on_setattr=LIVE)  # sequences that may wait, of all tenants
    block_size: int  # tokens a KV block holds
    model: str  # path of the checkpoint
    vocabulary: int  # ids the tokenizer has; no other may be sampled
    tenants: Mapping[str, Tenant] = attrs.field(factory=dict, on_setattr=LIVE)
    inter_token_target_s: float = 0.0  # a step with decodes should take no longer; 0: no target
    # Longest wait for a first step; 0: no limit.
    queue_timeout_s: float = attrs.field(default=0.0, on_setattr=LIVE)
    # By tier; sheds load to keep.
    ttft_targets_s: Mapping[int, float] = attrs.field(factory=dict, on_setattr=LIVE)
    plain_bytes: Callable[[int], bytes] | None = None  # `Text.plain_bytes`, for grammars
    shared_ports: bool = False  # transports listen where other processes do too (SO_REUSEPORT)
    geometry: "Geometry | None" = None  # known once the executor has loaded

    def loaded(self) -> "Geometry":
        """The geometry. Raises `RuntimeError` before the executor has loaded the model."""
        if self.geometry is None:
            raise RuntimeError("the executor has not loaded the model yet")
        return self.geometry

    def tenant(self, name: str) -> Tenant:
        """The tenant of that name, or `ANYBODY`."""
        return self.tenants.get(name, ANYBODY)

    def reload(self, reload: Reload) -> None:
        """Take over what the deployment's file says now. For the kernel alone."""
        self.tenants = reload.tenants
        self.max_waiting = reload.max_waiting
        self.queue_timeout_s = reload.queue_timeout_s
        self.ttft_targets_s = reload.ttft_targets_s


@attrs.frozen(kw_only=True)
class Geometry:
    """What the executor found once the model was loaded."""

    blocks: int  # KV blocks in the pool
    context_length: int  # most tokens of one sequence, prompt and output together
    vocabulary: int  # ids the model can sample
    stop_ids: tuple[int, ...]  # end-of-sequence ids by the model's own word
    host_blocks: int = 0  # blocks that can be swapped out to
    block_copy_s: float = 0.0  # measured: one block, device to host or back
    grammars: bool = False  # whether outputs can be held to a JSON schema


Explain = Callable[[Sequence], str | None]
"""Why a waiting sequence is not the next: "share", "tier" or "order", or a word of its own.

None: it is the next. A scheduler may have this as a method `why`, which changes nothing; it is
called between other calls, on the same thread. Whoever is not an operator sees no word but those.
"""


class Scheduler(Protocol):
    """Who is next, and who must give way. Called only from the scheduling task; must not block.

    The planner owns memory and batch; a scheduler orders, and cannot corrupt anything. If `add`
    raises for a new sequence, or `remove`, that sequence alone suffers; any other exception ends
    the server, since nobody could say who is next. A method `why` (`Explain`) may be there too.
    """

    def add(self, sequence: Sequence, now: float) -> None:
        """A new sequence, or one that wants back in: it was preempted, or paused by its reader."""
        ...

    def waiting(self, now: float) -> Iterator[Sequence]:
        """Lazily, best first, everyone who waits. The planner calls `joined` for whom it takes."""
        ...

    def joined(self, sequence: Sequence, cached: int) -> None:
        """It enters the batch and waits no more.

        The first time, when `sequence.joined_once` is still false, is when to charge its prompt, of
        which `cached` tokens need no computing.
        """
        ...

    def victims(self, running: Seq[Sequence], for_: Sequence) -> Iterator[Sequence]:
        """Best first, who of `running` may lose its place so that `for_` can go on."""
        ...

    def charge(self, output: Mapping[str, int]) -> None:
        """Output tokens by tenant, once a step. Replays after a preemption never appear."""
        ...

    def remove(self, sequence: Sequence) -> None:
        """Finished or cancelled, in any state. Never called twice for one sequence."""
        ...


@attrs.frozen
class KvStats:
    """Blocks of the pool: free + used + cached = total.

    `used` have a holder, counted once however many share it; `cached` have none and are given away
    when the free ones run out.
    """

    total: int
    free: int
    used: int
    cached: int = 0
    host_total: int = 0
    host_free: int = 0

    @property
    def available(self) -> int:
        """Blocks that can be handed out now."""
        return self.free + self.cached


class Eviction(Enum):
    """What became of an evicted sequence's K and V."""

    SWAPPED = "swapped"  # copied to host blocks by the moves of the coming plan
    RECOMPUTE = "recompute"  # given up


class Allocator(Protocol):
    """Bookkeeping of KV blocks: which sequence holds which. Never touches the device.

    Keeps `Sequence.blocks` as the block table. No sequence ever writes a block that another holds;
    a swapped-out sequence holds no device block. Called only from the scheduling task.
    """

    def need(self, tokens: int, sequence: Sequence | None = None) -> int:
        """Blocks still missing until `sequence` (None: a new one) holds `tokens` in all.

        More than `stats().total` for a new one means that it can never fit.
        """
        ...

    def reuse(self, sequence: Sequence) -> int:
        """Leading tokens whose blocks are cached, now shared by it; never all of its tokens.

        For a sequence without blocks. 0 when nothing is found, or nothing is ever shared.
        """
        ...

    def grow(self, sequence: Sequence, tokens: int) -> bool:
        """Extend its table to hold `tokens` in all. All or nothing; False: not enough free."""
        ...

    def commit(self, sequence: Sequence, computed: int) -> None:
        """Its first `computed` tokens are in the pool: full blocks can be found by others now."""
        ...

    def fork(self, parent: Sequence, child: Sequence) -> bool:
        """Give `child` the parent's blocks of the prompt: shared before the one that holds the
        prompt's last token, that one as a copy of its own. False: it must join on its own.
        """
        ...

    def freeable(self, sequences: Iterable[Sequence]) -> int:
        """Blocks that would come free if all of these were evicted together."""
        ...

    def evict(self, sequence: Sequence, *, computed: int, swap: bool) -> Eviction:
        """Take all its blocks. With `swap`, what is `computed` is kept on a host that has room."""
        ...

    def restore(self, sequence: Sequence) -> bool:
        """Bring a swapped-out sequence's blocks back. False: no room now, nothing changed."""
        ...

    def release(self, sequence: Sequence) -> None:
        """Give back all its blocks, host ones too. Nothing to do when it holds none.

        Raises `RuntimeError` when a block it names is not in use: the table was tampered with.
        """
        ...

    def forget(self) -> None:
        """The pool was made anew: nothing cached is there any more. Host copies stay valid."""
        ...

    def take_moves(self) -> Moves:
        """The copies that the plan being made needs, once."""
        ...

    def stats(self) -> KvStats:
        """Counters, O(1)."""
        ...


Progress = Callable[[str | Stage], None]
"""Takes what is being done: a line for the log, or a `Stage`, which `/health/startup` shows too."""


CachedBlocks = Callable[[], Iterable[int]]
"""Blocks that have no holder and content that can be found: `KvStats.cached` of them.

An allocator may have this as a method `cached_blocks`, for pictures of the pool. It changes
nothing, and is called between other calls, on the same thread.
"""


class Executor(Protocol):
    """Computes steps. Every method is called on one and the same thread, never the event loop's."""

    def load(self, progress: Progress) -> Geometry:
        """Load the model and lay out the pool; say what is being done through `progress`.

        Raises `LoadError` with a message for the operator.
        """
        ...

    def step(self, plan: Plan) -> StepDone:
        """Compute one plan. Plans come in order; an exception fails every sequence in the step."""
        ...

    def reset(self) -> None:
        """After a failed step: forget every slot and table, make the pool anew."""
        ...

    def close(self) -> None:
        """Release what was loaded."""
        ...


class LoadError(Exception):
    """A model, checkpoint or setting that cannot be served; the message says what and why."""


class TextStream(Protocol):
    """One stream's way from ids to text. Exact: text never takes itself back (owner: one task)."""

    def push(self, token: int) -> str:
        """Text that can be shown now; may be "" while a character or a stop string is undecided."""
        ...

    @property
    def stopped(self) -> bool:
        """Whether a stop string matched; the text before it has been returned, nothing follows."""
        ...

    def finish(self) -> str:
        """What was held back. The stream ended without a stop string."""
        ...


class Text(Protocol):
    """Strings to ids and back, for one model. Thread-safe; `encode*` may be called off the loop."""

    @property
    def vocabulary(self) -> int:
        """Ids 0 to vocabulary - 1; those `has_text` denies have no text of their own."""
        ...

    def has_text(self, token: int) -> bool:
        """Whether the tokenizer knows this id."""
        ...

    def token_bytes(self, token: int) -> bytes:
        """An id's own text in UTF-8, maybe a part of a character; b"" for ids without text.

        Special tokens have their text too, whether or not a stream shows it.
        """
        ...

    def plain_bytes(self, token: int) -> bytes:
        """As `token_bytes`, but b"" for special tokens."""
        ...

    def least_tokens(self, prompt: str) -> int:
        """A cheap lower bound of the length of `encode(prompt)`, to refuse before tokenising."""
        ...

    def encode(self, prompt: str) -> Int32s:
        """A raw prompt: special tokens parsed, BOS added if the model wants one and none is there.

        Raises `RequestFailed` for text that is not valid Unicode (lone surrogates).
        """
        ...

    def encode_chat(self, messages: Seq[Mapping[str, Any]]) -> Int32s:
        """Messages through the model's chat template, content never parsed as special tokens.

        Raises `RequestFailed` (param "messages") when the template refuses or there is none.
        """
        ...

    def stream(
        self, *, stop: tuple[str, ...], min_tokens: int, skip_special_tokens: bool
    ) -> TextStream:
        """A new stream. A stop string counts if completed by output token `min_tokens` or later."""
        ...
