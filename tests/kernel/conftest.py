from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest

from plancha.contracts import Allocator, Executor, Geometry, Scheduler, Site
from plancha.testing.executors import ChainExecutor, ScriptExecutor
from plancha.testing.simulation import Simulation
from plancha_allocators.paged import paged
from plancha_schedulers.fcfs import fcfs

EOS = 257


@attrs.frozen(kw_only=True)
class Rig:
    """The sizes of the behaviour cases, and simulations of that size."""

    blocks: int = 64
    block_size: int = 16
    max_sequences: int = 8
    max_batched_tokens: int = 64
    max_waiting: int = 1000
    context_length: int = 256
    host_blocks: int = 0
    block_copy_s: float = 0.0
    scheduler: Callable[[Site], Scheduler] = lambda site: fcfs({}, site)
    allocator: Callable[[Site], Allocator] = lambda site: paged({}, site)

    @property
    def geometry(self) -> Geometry:
        return Geometry(
            blocks=self.blocks,
            context_length=self.context_length,
            vocabulary=264,
            stop_ids=(EOS,),
            host_blocks=self.host_blocks,
            block_copy_s=self.block_copy_s,
        )

    def chain(self, **site: Any) -> Simulation:
        return self.simulate(ChainExecutor(self.geometry, self.block_size), **site)

    def script(self, *ids: int) -> Simulation:
        return self.simulate(ScriptExecutor(lambda prompt: ids, self.geometry, self.block_size))

    def by_prompt(self, script: Callable[[tuple[int, ...]], Sequence[int]]) -> Simulation:
        return self.simulate(ScriptExecutor(script, self.geometry, self.block_size))

    def simulate(self, executor: Executor, **fields: Any) -> Simulation:
        site = Site(
            max_sequences=self.max_sequences,
            max_batched_tokens=self.max_batched_tokens,
            max_waiting=self.max_waiting,
            block_size=self.block_size,
            model="tiny",
            vocabulary=260,
            **fields,
        )
        return Simulation(executor, site, self.scheduler, self.allocator)


@pytest.fixture
def rig() -> Rig:
    return Rig()
