"""A light tenant beside one that floods the server, in virtual time.

    python benchmarks/fairness.py [--plot FILE.svg]

Planner, schedulers and allocator are the real ones; the steps cost what `virtual.DATA_CENTRE` says.
"""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import cyclopts
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from virtual import BLOCK, DATA_CENTRE, Lengths, Virtual, trace_lengths

from plancha.contracts import Geometry, Scheduler, Site, Tenant
from plancha.testing.simulation import Simulation
from plancha_allocators.paged import paged
from plancha_schedulers.fair_queue import fair_queue
from plancha_schedulers.fcfs import fcfs

CONTEXT, SLOTS, STEP_TOKENS = 8192, 32, 2048
BACKLOG = 200
"""Requests that the flooding tenant has waiting at any time."""

LIGHT_PER_S = 0.8
"""Mean arrivals of the light tenant: about a tenth of what the worker serves."""

Make = Callable[[Site], Scheduler]


class Worker:
    """A simulated worker, and whose each request is."""

    def __init__(self, make: Make, lengths: Lengths, tenants: dict[str, Tenant]) -> None:
        site = Site(
            max_sequences=SLOTS,
            max_batched_tokens=STEP_TOKENS,
            max_waiting=100_000,
            block_size=BLOCK,
            model="none",
            vocabulary=100,
            tenants=tenants,
        )
        blocks = SLOTS * CONTEXT // BLOCK  # it is slots and time that are short here
        geometry = Geometry(blocks=blocks, context_length=CONTEXT, vocabulary=100, stop_ids=())
        executor = Virtual(geometry, DATA_CENTRE)
        self.simulation = Simulation(
            executor, site, make, lambda site: paged({"prefix_cache": False}, site), step_s=0
        )
        self.simulation.clock = executor.clock
        self.alive: Counter[str] = Counter()
        self.served: Counter[str] = Counter()  # 1 a prompt token, 2 an output token
        self._lengths = lengths
        self._chance: dict[str, random.Random] = {}
        self._tenants: dict[int, str] = {}

    @property
    def now(self) -> float:
        """Virtual seconds."""
        return self.simulation.clock()

    def post(self, tenant: str) -> int:
        """One of the trace's requests; the tenant's first, second, … are the same in every run."""
        prompt, output = self._chance.setdefault(tenant, random.Random(tenant)).choice(
            self._lengths
        )
        stream = self.simulation.submit([1] * prompt, output, tenant=tenant)
        self._tenants[stream] = tenant
        self.alive[tenant] += 1
        return stream

    def keep(self, tenant: str, requests: int) -> None:
        """Post until the tenant has so many under way."""
        while self.alive[tenant] < requests:
            self.post(tenant)

    def step(self) -> None:
        """One step, and the books of who ended in it."""
        plan = self.simulation.start()
        if plan is not None:
            self.simulation.commit(plan)
        for stream, end in self.simulation.finished.items():
            tenant = self._tenants.pop(stream)
            self.alive[tenant] -= 1
            self.served[tenant] += end.prompt_tokens + 2 * end.output_tokens
        self.simulation.finished.clear()


def first_tokens(make: Make, lengths: Lengths, backlog: int, requests: int) -> list[float]:
    """The light tenant's seconds to the first token while the other has a full batch and `backlog`.

    It arrives as a Poisson process, the same each time, from when the batch has settled.
    """
    worker, randomness = Worker(make, lengths, {}), random.Random(1)
    arrival_s = 10.0
    waiting: dict[int, float] = {}
    found: list[float] = []
    while len(found) < requests:
        while arrival_s <= worker.now:
            waiting[worker.post("light")] = arrival_s
            arrival_s += randomness.expovariate(LIGHT_PER_S)
        worker.keep("flood", SLOTS - worker.alive["light"] + backlog)
        worker.step()
        for stream in [each for each in waiting if worker.simulation.outputs[each]]:
            found.append(worker.now - waiting.pop(stream))
    return found


def share(weights: tuple[int, int], lengths: Lengths, seconds: float) -> float:
    """What the first of two backlogged tenants is served of the whole."""
    tenants = {name: Tenant(weight=weight) for name, weight in zip("ab", weights, strict=True)}
    worker = Worker(lambda site: fair_queue({}, site), lengths, tenants)
    while worker.now < seconds:
        for name in tenants:
            worker.keep(name, 2 * SLOTS)
        worker.step()
    return worker.served["a"] / worker.served.total()


def wait_table(waits: dict[str, list[float]]) -> Table:
    """Percentiles, and how they compare with those beside a batch that is just full."""
    table = Table(
        "the other tenant",
        "p50",
        "p99",
        "p50 ratio",
        "p99 ratio",
        title="A light tenant's time to the first token",
    )
    percentiles = {name: np.percentile(each, [50, 99]) for name, each in waits.items()}
    best = next(iter(percentiles.values()))
    for name, values in percentiles.items():
        ratios = [f"{value:.2f}" for value in values / best]
        table.add_row(name, *(f"{value:.2f} s" for value in values), *ratios)
    return table


def share_table(lengths: Lengths, seconds: float) -> Table:
    """Two backlogged tenants, at several weights."""
    table = Table(
        "weights",
        "due",
        "served",
        "error",
        title="Shares of two backlogged tenants",
    )
    for weights in track(((1, 1), (2, 1), (9, 1)), "sharing", transient=True):
        due, served = weights[0] / sum(weights), share(weights, lengths, seconds)
        row = (
            f"{weights[0]} : {weights[1]}",
            f"{due:.1%}",
            f"{served:.1%}",
            f"{served / due - 1:+.1%}",
        )
        table.add_row(*row)
    return table


def draw(waits: dict[str, list[float]], path: Path) -> None:
    """How many of the light tenant's requests had their first token by when."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FuncFormatter

    figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
    for (name, each), colour, style in zip(
        waits.items(), ("#8a8a8a", "#2a6f97", "#c8553d"), ("--", "-", "-"), strict=True
    ):
        percent = 100 * np.arange(1, len(each) + 1) / len(each)
        axes.plot(sorted(each), percent, style, color=colour, linewidth=2, label=name)
    axes.set(
        title="A light tenant beside one that floods the server",
        xscale="log",
        xlabel="seconds to the first token",
        ylabel="% of its requests",
        ylim=(0, 102),
    )
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(
        title="the other tenant", loc="center right", bbox_to_anchor=(0.88, 0.5), frameon=False
    )
    figure.savefig(path)


def main(*, requests: int = 1000, seconds: float = 300, plot: Path | None = None) -> None:
    """Print both tables; with --plot also draw the first. `requests` are the light tenant's."""
    console, (lengths, _) = Console(), trace_lengths(CONTEXT)
    runs: dict[str, tuple[Make, int]] = {
        "keeps the batch just full": (lambda site: fair_queue({}, site), 0),
        f"has {BACKLOG} waiting, fair-queue": (lambda site: fair_queue({}, site), BACKLOG),
        f"has {BACKLOG} waiting, fcfs": (lambda site: fcfs({}, site), BACKLOG),
    }
    waits = {
        name: first_tokens(make, lengths, backlog, requests)
        for name, (make, backlog) in track(runs.items(), "flooding", transient=True)
    }
    console.print(wait_table(waits))
    console.print(share_table(lengths, seconds))
    if plot is not None:
        draw(waits, plot)


if __name__ == "__main__":
    cyclopts.run(main)
