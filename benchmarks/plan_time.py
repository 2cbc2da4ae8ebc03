"""Python per step without a model, in µs per sequence: planning, model inputs, joining.

    python benchmarks/plan_time.py

The batch decodes at full width: four tenants in two tiers, stop ids, blocks that grow. Where the
literature has figures on such a machine, they are in docs/benchmarks.md.
"""

import time
from collections.abc import Callable
from statistics import median

import attrs
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from plancha.contracts import Geometry, Scheduler, Site, Tenant
from plancha.plans import Plan, StepDone
from plancha.sampling import Sampling
from plancha.testing.simulation import Simulation
from plancha_allocators.paged import paged
from plancha_engine.batch_tables import BatchTables
from plancha_schedulers.fair_queue import fair_queue
from plancha_schedulers.fcfs import fcfs
from plancha_schedulers.priority_preempt import priority_preempt

STEPS = 200
SIZES = (8, 64, 256, 1600, 10_000)
CONTEXT = 640
TENANTS = {f"tenant-{i}": Tenant(weight=1 + i, tier=i % 2) for i in range(4)}
SCHEDULERS: dict[str, Callable[[Site], Scheduler]] = {
    "fcfs": lambda site: fcfs({}, site),
    "fair-queue": lambda site: fair_queue({}, site),
    "priority-preempt": lambda site: priority_preempt({}, site),
}


@attrs.define(eq=False)
class Instant:
    """An executor that costs nothing: every row draws id 65."""

    sequences: int

    def load(self, progress: object) -> Geometry:
        return Geometry(
            blocks=self.sequences * CONTEXT // 16,
            context_length=CONTEXT,
            vocabulary=264,
            stop_ids=(257,),
        )

    def step(self, plan: Plan) -> StepDone:
        slots = plan.slots[plan.samples]
        return StepDone(plan.number, slots, np.full(slots.size, 65, np.int32), seconds=0.02)

    def reset(self) -> None: ...

    def close(self) -> None: ...


def batch_of(sequences: int, make: Callable[[Site], Scheduler], prompt: int) -> Simulation:
    """So many sequences, submitted and not yet joined."""
    site = Site(
        max_sequences=sequences,
        max_batched_tokens=sequences * (prompt + 1) + 16,
        max_waiting=sequences,
        block_size=16,
        model="none",
        vocabulary=260,
        tenants=TENANTS,
        inter_token_target_s=1.0,
    )
    simulation = Simulation(
        Instant(sequences), site, make, lambda site: paged({}, site), step_s=0.02
    )
    sampling = Sampling(stop_token_ids=(258, 259))
    for number in range(sequences):
        ids = [number % 251, number // 251, *[65] * (prompt - 2)]
        simulation.submit(
            ids, CONTEXT - prompt, sampling=sampling, tenant=f"tenant-{number % len(TENANTS)}"
        )
    return simulation


def step_us(sequences: int, make: Callable[[Site], Scheduler]) -> tuple[float, float]:
    """Medians per sequence: plan, apply and frame; and the model's inputs from the plan."""
    simulation = batch_of(sequences, make, 64)
    simulation.step()
    planner, executor = simulation.planner, Instant(sequences)
    tables = BatchTables(sequences, CONTEXT, 16)
    planning, inputs = [], []
    for _ in range(STEPS):
        begun = time.perf_counter()
        plan = planner.plan(0.0)
        planned = time.perf_counter()
        assert plan is not None and plan.slots.size == sequences
        tables.apply(plan)
        tables.batch(plan)
        prepared = time.perf_counter()
        done = executor.step(plan)
        computed = time.perf_counter()
        planner.apply(done, 0.0)
        planner.report.take_frame(planner.load())
        planning.append(planned - begun + time.perf_counter() - computed)
        inputs.append(prepared - planned)
    return 1e6 * median(planning) / sequences, 1e6 * median(inputs) / sequences


def joining_us(sequences: int, make: Callable[[Site], Scheduler]) -> float:
    """Per sequence: a plan in which prompts of 256 tokens join, and the commit of their blocks."""
    simulation = batch_of(sequences, make, 256)
    executor = Instant(sequences)
    begun = time.perf_counter()
    plan = simulation.planner.plan(0.0)
    planned = time.perf_counter()
    assert plan is not None and plan.slots.size == sequences
    done = executor.step(plan)
    computed = time.perf_counter()
    simulation.planner.apply(done, 0.0)
    return 1e6 * (planned - begun + time.perf_counter() - computed) / sequences


def main() -> None:
    """Two tables: a step, and joining."""
    table = Table(
        "sequences", *SCHEDULERS, "step, fair-queue", "inputs", title="µs per sequence per step"
    )
    for sequences in track(SIZES, "planning", transient=True):
        found = {name: step_us(sequences, make) for name, make in SCHEDULERS.items()}
        planning, inputs = found["fair-queue"]
        table.add_row(
            f"{sequences:,}",
            *(f"{each:.3f}" for each, _ in found.values()),
            f"{planning * sequences / 1e3:.3f} ms",
            f"{inputs:.3f}",
        )
    joining = Table("scheduler", "µs", title="a 256-token prompt joins, 16-token blocks hashed")
    for name, make in SCHEDULERS.items():
        joining.add_row(name, f"{median(joining_us(500, make) for _ in range(5)):.1f}")
    console = Console()
    console.print(table, joining)


if __name__ == "__main__":
    main()
