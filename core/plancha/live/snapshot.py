"""One look at a worker: everything that is told of it, before it is known who asks."""

from collections import Counter
from collections.abc import Iterable, Mapping

import attrs

from plancha.contracts import KvStats, Site
from plancha.live.block_map import BlockMap, block_map
from plancha.messages import Load
from plancha.metrics.recent import NOTHING, Quantiles
from plancha.planning.planner import Planner
from plancha.sequence import Sequence

WINDOW_S = 30.0
"""Recent is what happened since then."""

MOST_TENANTS = 200
"""Told of: those with sequences now, then those with the most tokens."""


@attrs.define(kw_only=True)
class TenantView:
    """One tenant, as numbers."""

    name: str
    tier: int
    running: int = 0
    waiting: int = 0
    paused: int = 0
    longest_wait_s: float = 0.0  # since acceptance, of those that wait
    preemptions: int = 0  # of its sequences that are there
    blocks: int = 0
    shared_blocks: int = 0  # of these, held by several of its sequences
    prompt_tokens: int = 0
    generated_tokens: int = 0
    ended: Counter[str] = attrs.field(factory=Counter)
    first_token: Quantiles = NOTHING
    inter_token: Quantiles = NOTHING


@attrs.frozen(kw_only=True)
class SequenceView:
    """One sequence of the batch. Tokens are prompt and output together, but `prompt_tokens`."""

    id: str  # of its request
    tenant: str
    decoding: bool
    prompt_tokens: int
    computed_tokens: int
    known_tokens: int
    limit_tokens: int
    blocks: int
    preemptions: int
    age_s: float  # since acceptance


@attrs.frozen(kw_only=True, eq=False)
class Snapshot:
    """Taken at `at_s`, between two steps of the planner's."""

    at_s: float
    load: Load
    stats: KvStats
    slots: int
    block_size: int
    blocks: BlockMap
    tenants: dict[str, TenantView]
    sequences: list[SequenceView]  # the oldest first
    first_token: Quantiles
    inter_token: Quantiles
    first_token_of: Mapping[str, Quantiles]  # by tenant, those that are not in `tenants` too
    inter_token_of: Mapping[str, Quantiles]


def take(planner: Planner, site: Site, now: float) -> Snapshot:
    """A look at everything; the cost grows with the sequences there are and the blocks they hold.

    Times are of the planner's clock. Call it between two calls of the planner's others.
    """
    tenants = _tenants(planner, site)
    _count(planner.sequences.values(), tenants, now)
    numbers = {name: number for number, name in enumerate(tenants)}
    allocator = planner.room.allocator
    blocks = block_map(planner.sequences.values(), numbers, allocator)
    for name, (held, shared) in blocks.held.items():
        tenants[name].blocks, tenants[name].shared_blocks = held, shared
    meters = planner.meters
    first_token, first_token_of = meters.recent_first_tokens.since(now - WINDOW_S)
    inter_token, inter_token_of = meters.recent_inter_tokens.since(now - WINDOW_S)
    for name, tenant in tenants.items():
        tenant.first_token = first_token_of.get(name, NOTHING)
        tenant.inter_token = inter_token_of.get(name, NOTHING)
    return Snapshot(
        at_s=now,
        load=planner.load(),
        stats=allocator.stats(),
        slots=site.max_sequences,
        block_size=site.block_size,
        blocks=blocks,
        tenants=tenants,
        sequences=_batch(planner, now),
        first_token=first_token,
        inter_token=inter_token,
        first_token_of=first_token_of,
        inter_token_of=inter_token_of,
    )


def counted(planner: Planner, site: Site, name: str) -> TenantView:
    """What a tenant has had so far, whatever it has now."""
    meters = planner.meters
    return TenantView(
        name=name,
        tier=site.tenant(name).tier,
        prompt_tokens=meters.prompts[name],
        generated_tokens=meters.generated[name],
        ended=Counter(meters.ended_of[name]) if name in meters.ended_of else Counter(),
    )


def _tenants(planner: Planner, site: Site) -> dict[str, TenantView]:
    """In the order of their names, so that a tenant's place seldom changes."""
    meters = planner.meters
    names = {sequence.tenant for sequence in planner.sequences.values()}
    for name, _ in meters.generated.most_common(MOST_TENANTS):
        if len(names) >= MOST_TENANTS:
            break
        names.add(name)
    return {name: counted(planner, site, name) for name in sorted(names)}


def _count(sequences: Iterable[Sequence], tenants: dict[str, TenantView], now: float) -> None:
    for sequence in sequences:
        tenant = tenants[sequence.tenant]
        tenant.preemptions += sequence.preemptions
        if sequence.slot is not None:
            tenant.running += 1
        elif sequence.paused:
            tenant.paused += 1
        else:
            tenant.waiting += 1
            tenant.longest_wait_s = max(tenant.longest_wait_s, now - sequence.arrived_s)


def _batch(planner: Planner, now: float) -> list[SequenceView]:
    batch = planner.batch
    fresh, computed, length = batch.fresh.tolist(), batch.computed.tolist(), batch.length.tolist()
    running = [
        (sequence, slot) for slot, sequence in enumerate(batch.sequences) if sequence is not None
    ]
    running.sort(key=lambda pair: pair[0].arrival)
    return [
        SequenceView(
            id=sequence.request.id,
            tenant=sequence.tenant,
            decoding=not fresh[slot],
            prompt_tokens=sequence.prompt_tokens,
            computed_tokens=computed[slot],
            known_tokens=length[slot],
            limit_tokens=sequence.max_length,
            blocks=len(sequence.blocks),
            preemptions=sequence.preemptions,
            age_s=now - sequence.arrived_s,
        )
        for sequence, slot in running
    ]
