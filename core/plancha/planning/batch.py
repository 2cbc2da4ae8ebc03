"""The running batch as columns indexed by slot: a decode step is a few array operations."""

import numpy as np

from plancha.messages import Bools, Int32s, Int64s
from plancha.sequence import Sequence

TIER_SHIFT = 48  # more joins than a server sees
JOINED_MASK = (1 << TIER_SHIFT) - 1


class Batch:
    """What every step touches of every running sequence. Owned by the scheduling task.

    Each column has `max_sequences` entries. In an empty slot `length`, `computed` and `capacity`
    are 0, so that whole columns can be compared; the others mean nothing. `token_ids` is int32
    [max_sequences, context_length]; `stops` is int32 [vocabulary], how many running sequences each
    id would end: one look-up tells that a step's token ends nobody. `fresh` are slots whose
    sequence has had no token since it joined; all others had one at `tokens_at_s`.
    """

    def __init__(self, max_sequences: int, context_length: int, vocabulary: int) -> None:
        self.sequences: list[Sequence | None] = [None] * max_sequences

        def column() -> Int32s:
            return np.zeros(max_sequences, np.int32)

        self.active: Bools = np.zeros(max_sequences, np.bool_)
        self.fresh: Bools = np.zeros(max_sequences, np.bool_)  # true in some empty slots as well
        self.stream: Int64s = np.zeros(max_sequences, np.int64)
        self.order: Int64s = np.zeros(max_sequences, np.int64)  # by tier, then by when it joined
        self.tokens_at_s = 0.0  # monotonic clock
        self.tenant = column()
        self.length = column()  # known tokens
        self.computed = column()  # tokens whose K and V are in the pool
        self.capacity = column()  # tokens its blocks can hold
        self.max_length = column()
        self.stops: Int32s = np.zeros(vocabulary, np.int32)
        self.token_ids: Int32s = np.zeros((max_sequences, context_length), np.int32)
        self._tenants: dict[str, int] = {}
        self._joined = 0
        self._free = list(range(max_sequences))[::-1]

    @property
    def free_slots(self) -> int:
        """Slots a sequence could join."""
        return len(self._free)

    @property
    def occupied(self) -> int:
        """Sequences in the batch."""
        return len(self.sequences) - len(self._free)

    @property
    def worst_tier(self) -> int:
        """The greatest tier in a full batch."""
        return int(self.order.max()) >> TIER_SHIFT

    def running(self) -> list[Sequence]:
        """Everyone in the batch, in no order."""
        return [sequence for sequence in self.sequences if sequence is not None]

    def join(self, sequence: Sequence, capacity: int) -> int:
        """Give `sequence` a slot and fill its columns from it. Raises `IndexError` when full.

        From here to `leave` its `token_ids` is its row here.
        """
        slot = self._free.pop()
        sequence.slot = slot
        self.sequences[slot] = sequence
        self.active[slot] = self.fresh[slot] = True
        self.stream[slot] = sequence.stream
        self.order[slot] = (sequence.tier << TIER_SHIFT) + self._joined
        self._joined += 1
        self.tenant[slot] = self._tenants.setdefault(sequence.tenant, len(self._tenants))
        self.length[slot] = sequence.length
        self.computed[slot] = sequence.computed
        self.capacity[slot] = capacity
        self.max_length[slot] = sequence.max_length
        for token in sequence.stop_ids:
            if token < self.stops.size:  # no other is ever sampled
                self.stops[token] += 1
        self.token_ids[slot, : sequence.length] = sequence.token_ids[: sequence.length]
        sequence.token_ids = self.token_ids[slot]
        return slot

    def leave(self, sequence: Sequence) -> int:
        """Empty its slot, write back what the columns knew; the slot. `KeyError` if it has none."""
        slot = sequence.slot
        if slot is None:
            raise KeyError(f"stream {sequence.stream} is not in the batch")
        sequence.length = int(self.length[slot])
        sequence.token_ids = self.token_ids[slot, : sequence.length].copy()
        sequence.computed = int(self.computed[slot])
        prefilled = min(sequence.computed, sequence.prompt_tokens)
        sequence.prefilled = max(sequence.prefilled, prefilled)
        if not self.fresh[slot]:
            sequence.last_token_s = self.tokens_at_s
        sequence.slot = None
        self.sequences[slot] = None
        self.active[slot] = False
        self.length[slot] = self.computed[slot] = self.capacity[slot] = 0
        for token in sequence.stop_ids:
            if token < self.stops.size:
                self.stops[token] -= 1
        self._free.append(slot)
        return slot

    def append(self, slots: Int32s, tokens: Int32s) -> Int32s:
        """Token `tokens[i]` is the next of slot `slots[i]`, no slot twice; their new lengths."""
        length = self.length[slots]
        self.token_ids[slots, length] = tokens
        length += 1
        self.length[slots] = length
        return length

    def running_of(self, tenant: str) -> int:
        """How many of that tenant are in the batch."""
        number = self._tenants.get(tenant)
        return 0 if number is None else int((self.active & (self.tenant == number)).sum())

    def running_by_tenant(self) -> dict[str, int]:
        """Sequences in the batch, of tenants that have any."""
        return self.output_by_tenant(np.flatnonzero(self.active).astype(np.int32))

    def output_by_tenant(self, slots: Int32s) -> dict[str, int]:
        """How many of `slots` belong to each tenant."""
        counts = np.bincount(self.tenant[slots], minlength=len(self._tenants)).tolist()
        return {tenant: counts[i] for tenant, i in self._tenants.items() if counts[i]}
