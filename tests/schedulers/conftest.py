"""Sequences to order by hand, and workers of known size to order in."""

from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

import attrs
import numpy as np
import pytest

from plancha.contracts import Geometry, Scheduler, Site, Tenant
from plancha.messages import InferenceRequest
from plancha.plans import Plan
from plancha.sampling import Sampling
from plancha.sequence import Sequence
from plancha.testing.executors import ScriptExecutor
from plancha.testing.simulation import Simulation
from plancha_allocators.paged import paged

BLOCK = 16
STEP_S = 0.02
Make = Callable[[Site], Scheduler]


@attrs.define
class Rig:
    """A worker in virtual time, and what each tenant was served so far."""

    simulation: Simulation
    tenants: dict[int, str] = attrs.field(factory=dict)  # by stream
    prompts: dict[int, int] = attrs.field(factory=dict)  # lengths, by stream
    joined: dict[int, int] = attrs.field(factory=dict)  # number of the plan they first joined in
    prompt_tokens: Counter[str] = attrs.field(factory=Counter)  # of sequences that joined
    output_tokens: Counter[str] = attrs.field(factory=Counter)
    _serial: "count[int]" = attrs.field(factory=count)

    def post(self, tenant: str, prompt: int, output: int, *, n: int = 1, same: bool = False) -> int:
        """A request of so many tokens; no two prompts begin alike, unless they are the `same`."""
        serial = 0 if same else next(self._serial)
        ids = [32 + serial // 95 % 95, 32 + serial % 95, *[100] * prompt][:prompt]
        first = self.simulation.submit(ids, output, tenant=tenant, n=n)
        for stream in range(first, first + n):
            self.tenants[stream] = tenant
            self.prompts[stream] = prompt
        return first

    def step(self) -> Plan | None:
        plan = self.simulation.start()
        if plan is None:
            return None
        for join in plan.joins:
            if join.stream not in self.joined:
                self.joined[join.stream] = plan.number
                self.prompt_tokens[self.tenants[join.stream]] += self.prompts[join.stream]
        streams = self.simulation.planner.batch.stream[plan.slots[plan.samples]].tolist()
        self.output_tokens.update(self.tenants[stream] for stream in streams)
        self.simulation.commit(plan)
        return plan

    def running(self, tenant: str) -> int:
        return sum(each.tenant == tenant for each in self.simulation.planner.batch.running())

    def alive(self, tenant: str) -> int:
        return sum(each.tenant == tenant for each in self.simulation.planner.sequences.values())

    def finished(self, tenant: str) -> int:
        return sum(self.tenants[stream] == tenant for stream in self.simulation.finished)

    def served(self, tenant: str) -> float:
        """By the paper's weights: 1 a prompt token, 2 an output token."""
        return self.prompt_tokens[tenant] + 2.0 * self.output_tokens[tenant]


@pytest.fixture
def rig() -> Callable[..., Rig]:
    """A maker of workers: pool, batch and budget are ample unless told."""

    def make(
        scheduler: Make,
        *,
        blocks: int = 256,
        max_sequences: int = 8,
        max_batched_tokens: int = 512,
        tenants: dict[str, Tenant] | None = None,
    ) -> Rig:
        geometry = Geometry(blocks=blocks, context_length=256, vocabulary=128, stop_ids=())
        site = Site(
            max_sequences=max_sequences,
            max_batched_tokens=max_batched_tokens,
            max_waiting=10_000,
            block_size=BLOCK,
            model="none",
            vocabulary=128,
            tenants=tenants or {},
        )
        executor = ScriptExecutor(lambda prompt: (65,), geometry, BLOCK)
        return Rig(
            Simulation(executor, site, scheduler, lambda site: paged({}, site), step_s=STEP_S)
        )

    return make


@pytest.fixture
def sequence() -> Callable[..., Sequence]:
    """A maker of sequences as admission would accept them, one after the other."""
    arrivals = count()

    def make(tenant: str = "a", *, prompt: int = 10, tier: int = 0, **fields: Any) -> Sequence:
        arrival = next(arrivals)
        ids = np.zeros(prompt, np.int32)
        request = InferenceRequest(
            id=str(arrival), tenant=tenant, prompts=(ids,), sampling=Sampling(), max_tokens=1
        )
        return Sequence(
            request=request,
            stream=arrival,
            arrival=arrival,
            arrived_s=0.0,
            prompt_tokens=prompt,
            token_ids=ids,
            length=prompt,
            max_length=prompt + 1,
            stop_ids=(),
            seed=0,
            tier=tier,
            **fields,
        )

    return make


@pytest.fixture
def site() -> Callable[..., Site]:
    """A maker of sites that differ in their tenants alone."""

    def make(**tenants: Tenant) -> Site:
        return Site(
            max_sequences=8,
            max_batched_tokens=64,
            max_waiting=8,
            block_size=BLOCK,
            model="none",
            vocabulary=128,
            tenants=tenants,
        )

    return make
