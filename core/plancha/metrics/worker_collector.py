"""A worker's figures as Prometheus' families: what was measured, and what the planner knows now."""

import time
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, Metric

from plancha.contracts import Clock, Eviction, Site
from plancha.messages import FinishReason
from plancha.metrics.families import PREFIX, counter, counters, gauge, gauges, histogram
from plancha.metrics.meters import OTHER, REASONS
from plancha.planning.planner import Planner

MOST_TENANTS = 500
"""Of the deployment's file, those that have series of their own; all others are one, "other"."""

ENDS: tuple[FinishReason, ...] = ("stop", "length", "cancelled", "error")


class WorkerCollector:
    """For a registry that is collected on the event loop of the planner's task."""

    def __init__(self, planner: Planner, site: Site, clock: Clock) -> None:
        self._planner = planner
        self._meters = planner.meters
        self._site = site
        self._clock = clock
        self._started_s = time.time()
        # Who has series, and how many of its tokens had been told as OTHER's before it had.
        self._named: dict[str, dict[str, int]] = {}
        self._name_tenants({})

    def collect(self) -> Iterator[Metric]:
        """Called by the registry."""
        yield from self._durations()
        yield from self._steps()
        yield from self._tokens()
        yield from self._sequences()
        yield from self._kv()
        yield from self._tenants()

    def _durations(self) -> Iterator[Metric]:
        meters = self._meters
        yield histogram(
            "time_to_first_token_seconds",
            "From a sequence's acceptance to its first token.",
            meters.first_token,
        )
        yield histogram(
            "inter_token_seconds",
            "From one token of a sequence to its next, less what its reader made it wait.",
            meters.inter_token,
        )
        yield histogram(
            "queue_seconds", "From a sequence's acceptance to its place in the batch.", meters.queue
        )
        yield histogram(
            "prefill_seconds",
            "From a sequence's first place in the batch to its first token.",
            meters.prefill,
        )
        yield histogram(
            "decode_seconds",
            "From a sequence's first token to its end, of those that ended well.",
            meters.decode,
        )
        yield histogram(
            "end_to_end_seconds",
            "From a sequence's acceptance to its end, of those that ended well.",
            meters.whole,
        )

    def _steps(self) -> Iterator[Metric]:
        meters, load = self._meters, self._planner.load()
        yield histogram("step_seconds", "From a step's plan to its tokens.", meters.step)
        yield histogram("step_sequences", "Sequences in a step.", meters.step_sequences)
        yield histogram("step_tokens", "Tokens that a step computed.", meters.step_tokens)
        yield counter("steps", "Steps that have ended, well or not.", load.steps)
        yield counter("failed_steps", "Steps that raised.", meters.failed_steps)
        yield gauge(
            "step_age_seconds",
            "How long ago the step in flight was planned; 0 without one.",
            self._planner.step_age_s(self._clock()),
        )
        yield counter(
            "executor_busy_seconds", "Time in steps, as the executor measured it.", meters.busy_s
        )
        yield gauge(
            "worker_start_time_seconds", "Unix time at which the model was loaded.", self._started_s
        )

    def _tokens(self) -> Iterator[Metric]:
        meters = self._meters
        yield counters(
            "computed_tokens",
            "Tokens computed: of prompts and of what preemptions lost, or one after the other.",
            "kind",
            {"prefill": meters.prefill_tokens, "decode": meters.decode_tokens},
        )
        yield counter(
            "replayed_tokens",
            "Of the prefill's tokens, those computed not for the first time.",
            meters.replayed_tokens,
        )
        yield counters(
            "prompt_tokens",
            "Prompt tokens, each counted once: computed, or found in the prefix cache.",
            "source",
            {"computed": meters.computed_prompt_tokens, "cached": meters.cached_prompt_tokens},
        )
        yield counter(
            "prefix_cache_queried_tokens",
            "Prompt tokens that were looked for in the prefix cache.",
            meters.queried_prompt_tokens,
        )
        yield counter("generated_tokens", "Tokens sampled and kept.", meters.generated.total())

    def _sequences(self) -> Iterator[Metric]:
        planner, meters, load = self._planner, self._meters, self._planner.load()
        yield gauge("running_sequences", "Sequences in the batch.", load.running)
        yield gauge("waiting_sequences", "Sequences that wait for it.", load.waiting)
        yield gauge("paused_sequences", "Sequences whose reader lags.", planner.paused_sequences)
        yield counters(
            "sequences",
            "Sequences that have ended, by how.",
            "reason",
            {reason: meters.ended[reason] for reason in ENDS},
        )
        yield counters(
            "rejections",
            "Requests refused, and sequences ended before their first step, by why.",
            "reason",
            {reason: meters.rejected[reason] for reason in sorted((*REASONS, OTHER))},
        )
        yield counters(
            "preemptions",
            "Sequences whose blocks were taken: swapped to the host, or to be computed again.",
            "kind",
            {kind.value: planner.room.preemptions[kind] for kind in Eviction},
        )

    def _kv(self) -> Iterator[Metric]:
        load, stats = self._planner.load(), self._planner.room.allocator.stats()
        yield gauge("kv_blocks", "Blocks of the KV pool.", stats.total)
        yield gauge("kv_used_blocks", "Blocks that sequences hold.", stats.used)
        yield gauge("kv_cached_blocks", "Blocks only the cache holds.", stats.cached)
        yield gauge("kv_free_blocks", "Blocks that hold nothing.", stats.free)
        yield gauge("kv_waste_ratio", "Reserved token slots still empty.", load.waste)
        yield gauge("kv_host_blocks", "Host blocks to swap to.", stats.host_total)
        yield gauge("kv_host_free_blocks", "Of those, the free ones.", stats.host_free)

    def _tenants(self) -> Iterator[Metric]:
        planner, meters = self._planner, self._meters
        counts = {"prompt": meters.prompts, "generated": meters.generated}
        self._name_tenants(counts)
        waiting = _labelled(planner.waiting_by_tenant(), self._named)
        running = _labelled(planner.batch.running_by_tenant(), self._named)
        yield gauges("tenant_waiting_sequences", "As waiting_sequences.", "tenant", waiting)
        yield gauges("tenant_running_sequences", "As running_sequences.", "tenant", running)
        tokens = CounterMetricFamily(
            PREFIX + "tenant_tokens",
            "Tokens of each tenant: of its prompts, cached ones too, and generated.",
            labels=("tenant", "kind"),
        )
        for kind, counted in counts.items():
            told = _labelled(counted, self._named)
            for tenant, before in self._named.items():
                told[tenant] -= before.get(kind, 0)
                told[OTHER] += before.get(kind, 0)
            for tenant, value in told.items():
                tokens.add_metric((tenant, kind), value)
        yield tokens

    def _name_tenants(self, counts: Mapping[str, Mapping[str, int]]) -> None:
        """Whoever has had series keeps them: counters never go back, whatever is reloaded."""
        for name in self._site.tenants:
            if name not in self._named and len(self._named) < MOST_TENANTS:
                self._named[name] = {kind: counted.get(name, 0) for kind, counted in counts.items()}


def _labelled(values: Mapping[str, int], names: Iterable[str]) -> dict[str, int]:
    """By label: each of `names` its own, the rest together."""
    labelled = dict.fromkeys((*names, OTHER), 0)
    for tenant, value in values.items():
        labelled[tenant if tenant in labelled else OTHER] += value
    return labelled
