"""Who was accepted and has not ended, counted: whether there is room for more, and who is ahead."""

from collections import Counter
from collections.abc import Iterable, Mapping

import attrs

from plancha.contracts import Site
from plancha.planning.batch import Batch
from plancha.planning.room import Room
from plancha.sequence import Sequence


@attrs.frozen
class Full:
    """A queue without a place: how many wait in it, and how many may."""

    waiting: int
    limit: int


@attrs.frozen
class Ahead:
    """Who goes before a newcomer."""

    better: int  # sequences of better tiers
    turns: float  # of its own tier
    tokens: float  # their prompts'


@attrs.define
class Line:
    """A tenant's sequences of one tier that have never been in the batch."""

    sequences: int = 0
    tokens: int = 0  # of their prompts


@attrs.define(kw_only=True, eq=False)
class Backlog:
    """Counts sequences from the moment admission accepts them, wherever they are on their way.

    **Waiting** are those outside the batch for which it has no free slot: who arrives at an idle
    server does not wait. Slots count for nothing while somebody is short of blocks, nor beyond a
    tenant's running limit. A paused sequence has no slot, so it waits.
    """

    site: Site
    batch: Batch
    room: Room
    newcomers: int = attrs.field(default=0, init=False)  # never in the batch so far
    _total: int = attrs.field(default=0, init=False)
    _accepted: Counter[str] = attrs.field(factory=Counter, init=False)  # by tenant
    _lines: dict[int, dict[str, Line]] = attrs.field(factory=dict, init=False)  # by tier and tenant

    def accepted(self, sequences: Iterable[Sequence]) -> None:
        """A request's."""
        for sequence in sequences:
            self._total += 1
            self.newcomers += 1
            self._accepted[sequence.tenant] += 1
            line = self._lines.setdefault(sequence.tier, {}).setdefault(sequence.tenant, Line())
            line.sequences += 1
            line.tokens += sequence.prompt_tokens

    def joined(self, sequence: Sequence) -> None:
        """It enters the batch for the first time."""
        self.newcomers -= 1
        lines = self._lines[sequence.tier]
        line = lines[sequence.tenant]
        line.sequences -= 1
        line.tokens -= sequence.prompt_tokens
        if line.sequences == 0:
            del lines[sequence.tenant]

    def ended(self, sequence: Sequence) -> None:
        """In whatever state."""
        if not sequence.joined_once:
            self.joined(sequence)
        self._total -= 1
        self._accepted[sequence.tenant] -= 1
        if self._accepted[sequence.tenant] == 0:
            del self._accepted[sequence.tenant]

    @property
    def accepted_by_tenant(self) -> Mapping[str, int]:
        """Sequences that have not ended, in the batch or not, of tenants that have any."""
        return self._accepted

    @property
    def free_slots(self) -> int:
        """Slots that newcomers could take."""
        return 0 if self.room.short_of_blocks else self.batch.free_slots

    @property
    def waiting(self) -> int:
        """Of all tenants."""
        return max(0, self._outside())

    def full(self, added: int) -> Full | None:
        """Whether `added` more would be too many in all."""
        if self._outside() + added <= self.site.max_waiting:
            return None
        return Full(self.waiting, self.site.max_waiting)

    def full_for(self, tenant: str, added: int) -> Full | None:
        """Whether they would be too many for this tenant.

        Without a bound of its own, and beside other tenants, it may have as many as it leaves free:
        so whoever floods leaves places for the others (the dynamic threshold of Choudhury and
        Hahne, "Dynamic queue length thresholds", 1998).
        """
        limit = self.site.tenant(tenant).max_waiting
        outside = self._outside_of(tenant)
        if limit is None and self._is_shared:
            limit = _half(self.site.max_waiting - max(0, self._outside() - outside))
        if limit is None or outside + added <= limit:
            return None
        return Full(max(0, outside), limit)

    def most(self, tenant: str) -> int:
        """Sequences that one request of this tenant may have, were it alone here."""
        limits, slots = self.site.tenant(tenant), self.site.max_sequences
        places = self.site.max_waiting
        own = limits.max_waiting
        if own is None:
            own = _half(places) if self._is_shared else places
        own_slots = slots if limits.max_running is None else min(slots, limits.max_running)
        return min(places + slots, own + own_slots)

    def tiers(self) -> list[int]:
        """Those in which somebody has yet to join, the best first."""
        return sorted(tier for tier, lines in self._lines.items() if lines)

    def ahead(self, tenant: str, tier: int) -> Ahead:
        """Who joins before this tenant's next: better tiers, its own line, the others' turns.

        Tenants of one tier take turns by weight, so another's line counts no further than that.
        """
        better, tokens = 0, 0.0
        for each, lines in self._lines.items():
            if each < tier:
                better += sum(line.sequences for line in lines.values())
                tokens += sum(line.tokens for line in lines.values())
        lines = self._lines.get(tier, {})
        own = lines[tenant].sequences if tenant in lines else 0
        rounds = (own + 1) / self.site.tenant(tenant).weight
        turns = 0.0
        for name, line in lines.items():
            due = own if name == tenant else rounds * self.site.tenant(name).weight
            taken = min(line.sequences, due)
            turns += taken
            tokens += line.tokens * taken / line.sequences
        return Ahead(better, turns, tokens)

    @property
    def _is_shared(self) -> bool:
        return len(self.site.tenants) > 1

    def _outside(self) -> int:
        return self._total - self.batch.occupied - self.free_slots

    def _outside_of(self, tenant: str) -> int:
        running, limit = self.batch.running_of(tenant), self.site.tenant(tenant).max_running
        slots = self.free_slots
        if limit is not None:
            slots = min(slots, max(0, limit - running))
        return self._accepted[tenant] - running - slots


def _half(places: int) -> int:
    return (places + 1) // 2
