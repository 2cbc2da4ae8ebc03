"""Every scheduler with every allocator, under random traffic: same answers, nothing lost."""

import random
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plancha.contracts import Allocator, Scheduler, Site, Tenant
from plancha.testing.executors import chain
from plancha_allocators.contiguous import contiguous
from plancha_allocators.paged import Paged, paged
from plancha_allocators.paged_swap import PagedSwap
from plancha_schedulers.fair_queue import fair_queue
from plancha_schedulers.fcfs import fcfs
from plancha_schedulers.priority_preempt import priority_preempt

TENANTS = {"gold": Tenant(weight=2.0), "a": Tenant(tier=1), "b": Tenant(tier=1, max_running=2)}

SCHEDULERS: dict[str, Callable[[Site], Scheduler]] = {
    "fcfs": lambda site: fcfs({}, site),
    "fair-queue": lambda site: fair_queue({}, site),
    "priority-preempt": lambda site: priority_preempt({}, site),
}


def swapping(site: Site) -> Allocator:
    geometry = site.loaded()
    return PagedSwap(Paged(geometry.blocks, site.block_size), geometry.host_blocks, site.block_size)


# Copying for nothing swaps every victim, at any price none; in between the cheaper way is taken.
ALLOCATORS: dict[str, tuple[Callable[[Site], Allocator], float]] = {
    "contiguous": (lambda site: contiguous({}, site), 0.0),
    "paged": (lambda site: paged({}, site), 0.0),
    "paged-swap, always": (swapping, 0.0),
    "paged-swap, never": (swapping, 1e9),
    "paged-swap, cheaper": (swapping, 0.02),
}

MOST_ALIVE = 40

PAIRINGS = [(scheduler, allocator) for scheduler in SCHEDULERS for allocator in ALLOCATORS]


def simulation_of(rig: Any, scheduler: str, allocator: str, **sizes: Any) -> Any:
    make, copy_s = ALLOCATORS[allocator]
    sized = attrs.evolve(
        rig,
        max_sequences=4,
        context_length=160,
        scheduler=SCHEDULERS[scheduler],
        allocator=make,
        block_copy_s=copy_s,
        **sizes,
    )
    simulation = sized.chain(tenants=TENANTS)
    for tokens in (10, 200, 40, 90, 150, 20, 60, 120, 30, 70):  # a millisecond a token
        simulation.planner.cost.observe(tokens, tokens * tokens / 2, 0.01 + tokens * 1e-3)
    return simulation


@attrs.define
class Traffic:
    """Random requests: some share a beginning, some are cancelled, some have a slow reader."""

    simulation: Any
    randomness: random.Random
    asked: dict[int, tuple[list[int], int]] = attrs.field(factory=dict)
    cancelled: set[int] = attrs.field(factory=set)

    def submit(self) -> None:
        draw = self.randomness
        prompt = [draw.randrange(32, 127) for _ in range(draw.choice([1, 15, 16, 17, 40, 63]))]
        if draw.random() < 0.3:
            prompt = [65 + draw.randrange(2)] * 48 + prompt[:20]
        tokens, n = draw.choice([1, 2, 15, 16, 17, 60]), draw.choice([1, 1, 1, 2])
        first = self.simulation.submit(
            prompt, tokens, tenant=draw.choice(["gold", "a", "b", "c"]), n=n
        )
        for stream in range(first, first + n):
            self.asked[stream] = prompt, tokens

    def cancel(self) -> None:
        alive = sorted(self.simulation.planner.sequences)
        if alive:
            self.cancelled.add(stream := self.randomness.choice(alive))
            self.simulation.cancel(stream)

    def pause_or_resume(self) -> None:
        alive = self.simulation.planner.sequences
        for stream in self.randomness.sample(sorted(alive), min(3, len(alive))):
            if alive[stream].paused:
                self.simulation.resume(stream)
            elif self.randomness.random() < 0.5:
                self.simulation.pause(stream)

    def run(self, requests: int) -> None:
        while requests or self.simulation.planner.sequences:
            for _ in range(self.randomness.choice([0, 0, 1, 2])):
                if requests and len(self.simulation.planner.sequences) < MOST_ALIVE:
                    self.submit()
                    requests -= 1
            if self.randomness.random() < 0.1:
                self.cancel()
            if self.randomness.random() < 0.2:
                self.pause_or_resume()
            self.simulation.step()

    def check(self) -> None:
        simulation = self.simulation
        assert set(simulation.finished) == set(self.asked)
        for stream, (prompt, tokens) in self.asked.items():
            output = simulation.outputs[stream]
            expected = chain(prompt, tokens)
            assert output == (expected[: len(output)] if stream in self.cancelled else expected)
        stats = simulation.allocator.stats()
        assert stats.available == stats.total
        assert stats.host_free == stats.host_total


@pytest.mark.parametrize(("scheduler", "allocator"), PAIRINGS)
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    seed=st.integers(0, 2**32), blocks=st.sampled_from([10, 14, 24]), host=st.sampled_from([4, 40])
)
def test_every_request_ends_once_with_the_undisturbed_answer(
    rig: Any, scheduler: str, allocator: str, seed: int, blocks: int, host: int
) -> None:
    simulation = simulation_of(rig, scheduler, allocator, blocks=blocks, host_blocks=host)
    traffic = Traffic(simulation, random.Random(seed))
    traffic.run(40)
    traffic.check()


@pytest.mark.parametrize(("scheduler", "allocator"), PAIRINGS)
def test_a_long_run_of_every_pairing(rig: Any, scheduler: str, allocator: str) -> None:
    """20,000 requests over all pairings."""
    simulation = simulation_of(rig, scheduler, allocator, blocks=20, host_blocks=20)
    traffic = Traffic(simulation, random.Random(len(scheduler) * 100 + len(allocator)))
    traffic.run(20_000 // len(PAIRINGS))
    traffic.check()
    if not allocator.startswith("contiguous"):
        assert simulation.planner.preemptions > 0
