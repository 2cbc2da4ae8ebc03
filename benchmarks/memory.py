"""What becomes of KV memory: waste, how many fit, and what preemption costs, in virtual time.

    python benchmarks/memory.py [--plot FILE.svg]

Planner, schedulers and allocators are the real ones; the steps cost what `virtual.LAPTOP` says.
"""

from collections.abc import Callable
from pathlib import Path

import attrs
import cyclopts
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from virtual import BLOCK, LAPTOP, Lengths, Virtual, trace_lengths

from plancha.contracts import Allocator, Eviction, Geometry, Site
from plancha.testing.simulation import Simulation
from plancha_allocators.contiguous import contiguous
from plancha_allocators.paged import paged
from plancha_allocators.paged_swap import paged_swap
from plancha_schedulers.fcfs import fcfs

Make = Callable[[Site], Allocator]


@attrs.frozen
class Job:
    """Requests to serve as fast as they go: all wait from the beginning."""

    lengths: Lengths
    context: int
    dropped: int


def read_job(requests: int, context: int) -> Job:
    """The trace's first requests that fit the context."""
    lengths, dropped = trace_lengths(context)
    return Job(lengths[:requests], context, dropped)


@attrs.define
class Outcome:
    """Means are by time."""

    seconds: float = 0.0
    waste: float = 0.0
    running: float = 0.0
    computed_tokens: int = 0
    known_tokens: int = 0
    preemptions: dict[Eviction, int] = attrs.field(factory=dict)
    gaps_s: list[float] = attrs.field(factory=list)  # between a stream's tokens

    @property
    def tokens_per_s(self) -> float:
        return self.known_tokens / self.seconds

    @property
    def recomputed(self) -> float:
        """Tokens computed twice, as a share of those that had to be."""
        return self.computed_tokens / self.known_tokens - 1


def serve(
    job: Job,
    make: Make,
    blocks: int,
    *,
    max_sequences: int = 256,
    host_blocks: int = 0,
    block_copy_s: float = 0.0,
) -> Outcome:
    """Run the whole job in virtual time."""
    geometry = Geometry(
        blocks=blocks,
        context_length=job.context,
        vocabulary=100,
        stop_ids=(),
        host_blocks=host_blocks,
        block_copy_s=block_copy_s,
    )
    site = Site(
        max_sequences=max_sequences,
        max_batched_tokens=512,
        max_waiting=len(job.lengths),
        block_size=BLOCK,
        model="none",
        vocabulary=100,
    )
    executor = Virtual(geometry, LAPTOP)
    simulation = Simulation(executor, site, lambda site: fcfs({}, site), make)
    for number, (prompt, output) in enumerate(job.lengths):
        simulation.submit([number % 97, number // 97] + [1] * (prompt - 2), output)
    return watch(simulation, executor)


def watch(simulation: Simulation, executor: Virtual) -> Outcome:
    """Step until nobody is left."""
    outcome, planner, clock = Outcome(), simulation.planner, executor.clock
    last: dict[int, float] = {}
    while (plan := planner.plan(clock())) is not None:
        done = executor.step(plan)
        load = planner.load()
        outcome.waste += load.waste * done.seconds
        outcome.running += load.running * done.seconds
        outcome.computed_tokens += int(plan.counts.sum())
        planner.apply(done, clock())
        frame = planner.report.take_frame(planner.load())
        for stream in frame.streams.tolist() if frame else ():
            outcome.gaps_s += [clock() - last[stream]] if stream in last else []
            last[stream] = clock()
        for end in frame.finished if frame else ():
            outcome.known_tokens += end.prompt_tokens + end.output_tokens - 1
    outcome.seconds = clock()
    outcome.waste /= clock()
    outcome.running /= clock()
    outcome.preemptions = dict(planner.room.preemptions)
    return outcome


def waste_table(job: Job, blocks: int) -> tuple[Table, dict[str, Outcome]]:
    """The same pool, by slabs and by blocks."""
    allocators: dict[str, Make] = {
        "contiguous": lambda site: contiguous({}, site),
        "paged": lambda site: paged({"prefix_cache": False}, site),
    }
    outcomes = {
        name: serve(job, make, blocks)
        for name, make in track(allocators.items(), "serving the trace", transient=True)
    }
    table = Table(
        "allocator",
        "waste",
        "running at once",
        "tokens/s",
        "ratio",
        title=f"{len(job.lengths)} conversations in {blocks * BLOCK:,} token slots, "
        f"context {job.context:,} ({job.dropped} longer ones dropped)",
    )
    slowest = outcomes["contiguous"].tokens_per_s
    for name, outcome in outcomes.items():
        table.add_row(
            name,
            f"{outcome.waste:.1%}",
            f"{outcome.running:.1f}",
            f"{outcome.tokens_per_s:,.0f}",
            f"{outcome.tokens_per_s / slowest:.2f}",
        )
    return table, outcomes


def preemption_table(job: Job, blocks: int) -> Table:
    """A pool of 60 % of what the running want, and three ways to give way."""
    table = Table(
        "victims are",
        "recomputed tokens",
        "preemptions",
        "swapped",
        "inter-token p50",
        "p99",
        title=f"64 at once in {blocks * BLOCK:,} token slots, 60 % of what they want",
    )
    ways: dict[str, tuple[Make, int, float]] = {
        "recomputed": (lambda site: paged({"prefix_cache": False}, site), 0, 0.0),
        "swapped": (lambda site: paged_swap({"prefix_cache": False}, site), 4 * blocks, 1e-9),
        "whichever is cheaper": (
            lambda site: paged_swap({"prefix_cache": False}, site),
            4 * blocks,
            0.016,
        ),
    }
    for name, (make, host_blocks, copy_s) in track(ways.items(), "preempting", transient=True):
        outcome = serve(
            job, make, blocks, max_sequences=64, host_blocks=host_blocks, block_copy_s=copy_s
        )
        p50, p99 = np.percentile(outcome.gaps_s, [50, 99])
        table.add_row(
            name,
            f"{outcome.recomputed:.1%}",
            str(sum(outcome.preemptions.values())),
            str(outcome.preemptions.get(Eviction.SWAPPED, 0)),
            f"{p50:.3f} s",
            f"{p99:.3f} s",
        )
    return table


def demand(job: Job, at_once: int) -> int:
    """Blocks that so many of the job's requests hold on average at their end."""
    ends = [-(-(prompt + output) // BLOCK) for prompt, output in job.lengths]
    return int(np.mean(ends) * at_once)


def draw(outcomes: dict[str, Outcome], path: Path) -> None:
    """Two bars: what of the reserved memory holds tokens, and what does not."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    names = list(outcomes)
    used = [100 * (1 - outcome.waste) for outcome in outcomes.values()]
    left.barh(names, used, color="#2a6f97", label="tokens")
    left.barh(names, [100 - u for u in used], left=used, color="#d9d9d9", label="reserved, empty")
    left.set(title="Reserved KV memory, %", xlim=(0, 100))
    left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2, frameon=False)
    right.barh(names, [outcome.running for outcome in outcomes.values()], color="#2a6f97")
    right.set(title="Conversations at once")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


def main(*, requests: int = 600, context: int = 8192, plot: Path | None = None) -> None:
    """Print the tables; with --plot also draw the first."""
    console = Console()
    job = read_job(requests, context)
    table, outcomes = waste_table(job, blocks=8 * context // BLOCK)
    console.print(table)
    short = attrs.evolve(job, lengths=job.lengths[:300])
    console.print(preemption_table(short, int(0.6 * demand(short, 64))))
    if plot is not None:
        draw(outcomes, plot)


if __name__ == "__main__":
    cyclopts.run(main)
