"""Python per step without a model: µs per sequence of plan + apply, at a full batch of decodes.

    python benchmarks/plan_time.py
"""

import time

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from plancha.contracts import Geometry, Site
from plancha.messages import Plan, StepDone
from plancha.testing.simulation import Simulation
from plancha_allocators.paged import paged
from plancha_schedulers.fcfs import fcfs

STEPS = 200
PROMPT = 64


class Instant:
    """An executor that costs nothing: every row draws id 65."""

    def __init__(self, sequences: int) -> None:
        self._geometry = Geometry(
            blocks=sequences * 40, context_length=640, vocabulary=264, stop_ids=(257,)
        )

    def load(self, progress: object) -> Geometry:
        return self._geometry

    def step(self, plan: Plan) -> StepDone:
        slots = plan.slots[plan.samples]
        return StepDone(plan.number, slots, np.full(slots.size, 65, np.int32))

    def reset(self) -> None: ...

    def close(self) -> None: ...


def microseconds(sequences: int) -> list[float]:
    """Time of plan and apply (frame included) per step, divided by the batch; one entry a step."""
    site = Site(
        max_sequences=sequences,
        max_batched_tokens=sequences * (PROMPT + 1) + 16,
        max_waiting=sequences,
        block_size=16,
        model="none",
        vocabulary=260,
    )
    executor = Instant(sequences)
    simulation = Simulation(
        executor, site, lambda site: fcfs({}, site), lambda site: paged({}, site)
    )
    for _ in range(sequences):
        simulation.submit([65] * PROMPT, 500)
    simulation.step()
    planner = simulation.planner
    times = []
    for _ in range(STEPS):
        begun = time.perf_counter()
        plan = planner.plan(0.0)
        planned = time.perf_counter()
        assert plan is not None and plan.slots.size == sequences
        done = executor.step(plan)
        computed = time.perf_counter()
        planner.apply(done)
        planner.report.take_frame(planner.load())
        times.append(planned - begun + time.perf_counter() - computed)
    return [1e6 * seconds / sequences for seconds in times]


def main() -> None:
    """Print best, median and the step's whole time at several batch sizes."""
    table = Table("sequences", "best µs", "median µs", "median step ms", title="plan + apply")
    for sequences in track((8, 32, 64, 256, 1600, 10_000), "planning", transient=True):
        times = sorted(microseconds(sequences))
        median = times[len(times) // 2]
        table.add_row(
            f"{sequences:,}", f"{times[0]:.3f}", f"{median:.3f}", f"{median * sequences / 1e3:.3f}"
        )
    Console().print(table)


if __name__ == "__main__":
    main()
