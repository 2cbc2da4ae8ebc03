"""What a worker looks like now: to operators all of it, to a tenant what is its own.

Of the others a tenant is told how full pool and batch are, to a twentieth, and nothing else: no
name, no count, no block's place.
"""

import time
from typing import Any

import attrs
import orjson

from plancha.contracts import Clock, Eviction, Site
from plancha.live.block_map import own_map, runs, stride_of
from plancha.live.snapshot import WINDOW_S, SequenceView, Snapshot, TenantView, counted, take
from plancha.messages import Answer, Ask
from plancha.metrics.recent import NOTHING, Quantiles
from plancha.planning.planner import Planner

FRESH_S = 0.25
"""For so long an answer is given again, however many ask."""

MOST_BUSY = 0.05
STALE_S = 2.0
"""Of the event loop's time, for looking: a look that took long is given again for longer, but not
for longer than that.
"""

MOST_SEQUENCES = 256
"""Told of one by one."""

TWENTIETH = 0.05
ENDS = ("stop", "length", "cancelled", "error")


@attrs.define(kw_only=True, eq=False)
class Live:
    """Answers between two of the planner's steps and on its event loop; looks only when asked."""

    planner: Planner
    site: Site
    clock: Clock
    _began_s: float = attrs.field(init=False)
    _snapshot: Snapshot | None = attrs.field(default=None, init=False)
    _fresh_until_s: float = attrs.field(default=0.0, init=False)
    _told: dict[str | None, bytes] = attrs.field(factory=dict, init=False)  # None: to operators

    def __attrs_post_init__(self) -> None:
        self._began_s = self.clock()

    async def answer(self, ask: Ask) -> Answer:
        """JSON, as `Live` in /openapi.json."""
        snapshot = self._look()
        viewer = None if ask.any_tenant else ask.tenant
        told = self._told.get(viewer)
        if told is None:
            all_or_own = self._all(snapshot) if viewer is None else self._own(snapshot, viewer)
            told = self._told[viewer] = orjson.dumps(all_or_own)
        return Answer(ask.number, content=told)

    def _look(self) -> Snapshot:
        now = self.clock()
        if self._snapshot is None or now >= self._fresh_until_s:
            began = time.perf_counter()
            self._snapshot = take(self.planner, self.site, now)
            took_s = time.perf_counter() - began
            self._fresh_until_s = now + min(max(FRESH_S, took_s / MOST_BUSY), STALE_S)
            self._told.clear()
        return self._snapshot

    def _all(self, snapshot: Snapshot) -> dict[str, Any]:
        load, stats, meters = snapshot.load, snapshot.stats, self.planner.meters
        preempted = self.planner.room.preemptions
        codes = snapshot.blocks.codes
        return {
            "object": "live",
            "scope": "all",
            "at_s": _seconds(snapshot.at_s - self._began_s),
            "kv": {
                "block_size": snapshot.block_size,
                "total_blocks": stats.total,
                "used_share": _share(stats.used, stats.total),
                "used_blocks": stats.used,
                "cached_blocks": stats.cached,
                "free_blocks": stats.free,
                "waste": round(load.waste, 4),
                "host_blocks": stats.host_total,
                "host_free_blocks": stats.host_free,
                **_map(codes),
            },
            "batch": {
                "slots": snapshot.slots,
                "used_share": _share(load.running, snapshot.slots),
                **_rows(snapshot.sequences),
            },
            "tenants": [_tenant(each) for each in snapshot.tenants.values()],
            "counters": {
                "steps": load.steps,
                "generated_tokens": meters.generated.total(),
                "prompt_tokens": meters.computed_prompt_tokens + meters.cached_prompt_tokens,
                "cached_prompt_tokens": meters.cached_prompt_tokens,
                "ended": {reason: meters.ended[reason] for reason in ENDS},  # type: ignore[index]
                "rejected": meters.rejected.total(),
                "preemptions": {kind.value: preempted[kind] for kind in Eviction},
            },
            "recent": _recent(snapshot.first_token, snapshot.inter_token),
        }

    def _own(self, snapshot: Snapshot, viewer: str) -> dict[str, Any]:
        total = snapshot.stats.total
        own = snapshot.tenants.get(viewer)
        if own is None:  # it has nothing now, and others had more: all the same it had something
            own = counted(self.planner, self.site, viewer)
            own.first_token = snapshot.first_token_of.get(viewer, NOTHING)
            own.inter_token = snapshot.inter_token_of.get(viewer, NOTHING)
        sequences = [each for each in snapshot.sequences if each.tenant == viewer]
        return {
            "object": "live",
            "scope": "tenant",
            "at_s": _seconds(snapshot.at_s - self._began_s),
            "kv": {
                "block_size": snapshot.block_size,
                "total_blocks": total,
                "used_share": _rough(_share(snapshot.stats.used, total)),
                **_map(own_map(total, own.blocks, own.shared_blocks)),
            },
            "batch": {
                "slots": snapshot.slots,
                "used_share": _rough(_share(snapshot.load.running, snapshot.slots)),
                **_rows(sequences),
            },
            "tenants": [_tenant(own)],
            "counters": {
                "generated_tokens": own.generated_tokens,
                "prompt_tokens": own.prompt_tokens,
                "ended": {reason: own.ended[reason] for reason in ENDS},
            },
            "recent": _recent(own.first_token, own.inter_token),
        }


def _map(codes: Any) -> dict[str, Any]:
    stride = stride_of(codes.size)
    return {"map_stride": stride, "map": runs(codes[::stride])}


def _rows(sequences: list[SequenceView]) -> dict[str, Any]:
    return {
        "running": len(sequences),
        "sequences": [_sequence(each) for each in sequences[:MOST_SEQUENCES]],
    }


def _sequence(sequence: SequenceView) -> dict[str, Any]:
    return {  # as attrs.asdict makes it, in a tenth of the time
        "id": sequence.id,
        "tenant": sequence.tenant,
        "state": "decode" if sequence.decoding else "prefill",
        "prompt_tokens": sequence.prompt_tokens,
        "computed_tokens": sequence.computed_tokens,
        "known_tokens": sequence.known_tokens,
        "limit_tokens": sequence.limit_tokens,
        "blocks": sequence.blocks,
        "preemptions": sequence.preemptions,
        "age_s": _seconds(sequence.age_s),
    }


def _tenant(tenant: TenantView) -> dict[str, Any]:
    told = attrs.asdict(tenant, recurse=False)
    del told["ended"]
    told["longest_wait_s"] = _seconds(tenant.longest_wait_s)
    told["first_token"] = _quantiles(tenant.first_token)
    told["inter_token"] = _quantiles(tenant.inter_token)
    return told


def _recent(first_token: Quantiles, inter_token: Quantiles) -> dict[str, Any]:
    return {
        "window_s": WINDOW_S,
        "first_token": _quantiles(first_token),
        "inter_token": _quantiles(inter_token),
    }


def _quantiles(quantiles: Quantiles) -> dict[str, Any]:
    return {
        "count": quantiles.count,
        "p50_s": None if quantiles.p50_s is None else _seconds(quantiles.p50_s),
        "p99_s": None if quantiles.p99_s is None else _seconds(quantiles.p99_s),
    }


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0


def _rough(share: float) -> float:
    return round(round(share / TWENTIETH) * TWENTIETH, 2)


def _seconds(seconds: float) -> float:
    return round(seconds, 6)
