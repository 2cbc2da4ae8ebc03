"""What a worker measures, against what the test sees itself, token by token."""

import time
from itertools import pairwise
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plancha.contracts import Eviction, Tenant
from plancha.failure import Failure, RequestFailed
from plancha.metrics.histogram import Histogram
from plancha.testing.simulation import Simulation
from plancha_allocators.paged_swap import paged_swap

STEP_S = 0.02


def observed(histogram: Histogram) -> tuple[int, float]:
    return histogram.count, round(histogram.sum, 9)


def test_a_value_belongs_to_the_bucket_whose_bound_it_equals() -> None:
    histogram = Histogram(1.0, 2.0)
    for value in (0.5, 1.0, 1.5, 2.0, 2.5):
        histogram.observe(value)
    histogram.observe(7.0, times=2)
    assert histogram.buckets() == [("1.0", 2.0), ("2.0", 4.0), ("+Inf", 7.0)]
    assert histogram.sum == 7.5 + 14.0


def test_a_sequence_is_timed_from_acceptance_to_its_end(rig: Any) -> None:
    simulation = rig.script(65)
    meters = simulation.planner.meters
    simulation.submit([65] * 20, 4)
    simulation.clock.advance(1.5)
    simulation.run()
    assert observed(meters.queue) == (1, 1.5)
    assert observed(meters.prefill) == (1, STEP_S)
    assert observed(meters.first_token) == (1, 1.5 + STEP_S)
    assert observed(meters.inter_token) == (3, round(3 * STEP_S, 9))
    assert observed(meters.decode) == (1, round(3 * STEP_S, 9))
    assert observed(meters.whole) == (1, round(1.5 + 4 * STEP_S, 9))
    assert observed(meters.step) == (4, round(4 * STEP_S, 9))
    assert observed(meters.step_sequences) == (4, 4.0)
    assert observed(meters.step_tokens) == (4, 20.0 + 3)


def test_tokens_are_counted_by_what_they_were_computed_for(rig: Any) -> None:
    simulation = rig.chain()
    meters = simulation.planner.meters
    simulation.submit(list(range(40, 80)), 5, tenant="acme")
    simulation.run()
    simulation.submit(list(range(40, 80)), 5, tenant="acme")
    simulation.run()
    assert meters.computed_prompt_tokens == 40 + 8  # two blocks of 16 were there
    assert meters.cached_prompt_tokens == 32
    assert meters.queried_prompt_tokens == 80
    assert meters.prefill_tokens == 48
    assert meters.replayed_tokens == 0
    assert meters.decode_tokens == 2 * 4  # the first token comes of the prompt
    assert meters.generated == {"acme": 10}
    assert meters.prompts == {"acme": 80}


def test_a_prompt_of_several_outputs_is_counted_once(rig: Any) -> None:
    simulation = rig.chain()
    simulation.submit(list(range(40, 60)), 3, n=4)
    simulation.run()
    meters = simulation.planner.meters
    assert meters.computed_prompt_tokens == 20
    assert meters.queried_prompt_tokens == 20
    assert meters.generated.total() == 12
    assert meters.first_token.count == 4


@pytest.mark.parametrize(("swap", "kind"), [(False, "RECOMPUTE"), (True, "SWAPPED")])
def test_what_a_preemption_cost_is_counted_and_no_token_twice(
    rig: Any, swap: bool, kind: str
) -> None:
    rig = attrs.evolve(rig, blocks=12)
    if swap:
        rig = attrs.evolve(rig, host_blocks=64, allocator=lambda site: paged_swap({}, site))
    simulation = rig.chain()
    if swap:
        for tokens in range(1, 20):  # what recomputing costs is known by then
            simulation.planner.cost.observe(tokens, tokens * tokens / 2, 0.01 * tokens)
    prompts = [list(range(40 + i, 80 + i)) for i in range(4)]
    for prompt in prompts:
        simulation.submit(prompt, 40)
    simulation.run()
    meters, preemptions = simulation.planner.meters, simulation.planner.room.preemptions
    assert preemptions[Eviction[kind]] > 0
    assert meters.computed_prompt_tokens + meters.cached_prompt_tokens == 160
    assert meters.generated.total() == 160
    assert (meters.replayed_tokens > 0) is not swap
    assert meters.decode_tokens == 160 - 4  # the first token of each comes of its prompt
    computed = sum(int(plan.counts.sum()) for plan in simulation.plans)
    assert meters.prefill_tokens + meters.decode_tokens == computed
    assert meters.step_tokens.sum == computed
    assert meters.inter_token.count == 160 - 4


class Listener:
    """Notes when each token of each stream comes."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.times: dict[int, list[float]] = {}
        self.accepted: dict[int, float] = {}

    def submit(self, *args: Any, **fields: Any) -> int:
        stream = self.simulation.submit(*args, **fields)
        self.accepted[stream] = self.simulation.clock()
        return stream

    def step(self) -> None:
        self.simulation.step()
        for stream, tokens in self.simulation.outputs.items():
            seen = self.times.setdefault(stream, [])
            seen += [self.simulation.clock()] * (len(tokens) - len(seen))


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    requests=st.lists(
        st.tuples(st.integers(1, 60), st.integers(1, 40), st.integers(0, 6), st.floats(0, 0.1)),
        min_size=1,
        max_size=12,
    )
)
def test_every_gap_between_tokens_is_observed_through_joins_and_preemptions(
    rig: Any, requests: list[tuple[int, int, int, float]]
) -> None:
    simulation = attrs.evolve(rig, blocks=14, max_sequences=4).chain()
    listener = Listener(simulation)
    for prompt, output, steps, pause_s in requests:
        listener.submit([32 + i % 90 for i in range(prompt)], output)
        simulation.clock.advance(pause_s)
        for _ in range(steps):
            listener.step()
    while simulation.planner.sequences:
        listener.step()
    meters = simulation.planner.meters
    gaps = [b - a for times in listener.times.values() for a, b in pairwise(times)]
    firsts = [times[0] - listener.accepted[s] for s, times in listener.times.items()]
    assert meters.inter_token.count == len(gaps)
    assert meters.inter_token.sum == pytest.approx(sum(gaps))
    assert meters.first_token.count == len(firsts)
    assert meters.first_token.sum == pytest.approx(sum(firsts))


def test_a_readers_pause_is_no_gap_of_ours(rig: Any) -> None:
    simulation = rig.script(65)
    stream = simulation.submit([65] * 20, 10)
    for _ in range(3):
        simulation.step()
    simulation.pause(stream)
    simulation.step()
    assert simulation.planner.paused_sequences == 1
    simulation.clock.advance(1000.0)
    simulation.resume(stream)
    simulation.run()
    meters = simulation.planner.meters
    assert meters.inter_token.count == 10 - 2  # the first token has none, nor the one after it
    assert meters.inter_token.sum < 1.0


def test_refusals_are_counted_by_reason_before_and_after_acceptance(rig: Any) -> None:
    tenants = {"acme": Tenant(max_waiting=1), "other-one": Tenant(tokens_per_minute=10)}
    simulation = attrs.evolve(rig, max_sequences=1).chain(tenants=tenants, queue_timeout_s=5.0)
    refused = [
        ("acme", 300, 1),
        ("acme", 20, 2),
        ("acme", 20, 3),
        ("acme", 20, 4),
        ("other-one", 20, 5),
        ("other-one", 20, 6),
    ]
    for tenant, prompt, _ in refused:
        try:
            simulation.submit([65] * prompt, 20, tenant=tenant)
        except RequestFailed:
            pass
        simulation.step()
    simulation.clock.advance(10.0)
    simulation.step()
    assert simulation.planner.meters.rejected == {
        "context_length_exceeded": 1,
        "tenant_queue_full": 1,
        "tokens_per_minute": 1,
        "queue_timeout": 2,
    }
    simulation.run()


def test_a_reason_that_nobody_thought_of_is_other(rig: Any) -> None:
    meters = rig.chain().planner.meters
    meters.refused(Failure("invalid", "…", None, "from-a-client's-mouth"))
    meters.refused(Failure("invalid", "…"))
    assert meters.rejected == {"other": 2}


@pytest.mark.parametrize("shift_s", [-3600.0, 3600.0])
def test_a_step_of_the_wall_clock_changes_no_duration_and_ends_nobody(
    rig: Any, monkeypatch: pytest.MonkeyPatch, shift_s: float
) -> None:
    def run(shift_s: float) -> list[list[tuple[str, float]]]:
        tenants = {"acme": Tenant(tokens_per_minute=100_000)}
        simulation = rig.chain(tenants=tenants, queue_timeout_s=60.0)
        for _ in range(20):
            simulation.submit([65] * 30, 20, tenant="acme", timeout_s=60.0)
        simulation.step()
        wall = time.time
        monkeypatch.setattr(time, "time", lambda: wall() + shift_s)
        simulation.run()
        monkeypatch.setattr(time, "time", wall)
        assert all(end.reason == "length" for end in simulation.finished.values())
        meters = simulation.planner.meters
        histograms = [
            value for value in attrs.asdict(meters).values() if isinstance(value, Histogram)
        ]
        assert len(histograms) == 9
        assert all(histogram.sum >= 0 for histogram in histograms)
        assert all(histogram.count > 0 for histogram in histograms)
        return [histogram.buckets() for histogram in histograms]

    assert run(shift_s) == run(0.0)
