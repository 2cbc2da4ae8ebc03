"""Three times as much as the worker can do, for ten minutes, in virtual time.

    python benchmarks/overload.py

Planner, admission, schedulers and allocator are the real ones; the steps cost what
`virtual.DATA_CENTRE` says. Two tiers ask for more together than can be served; who is refused does
not come back. The first half minute, in which nobody can know yet how fast the line moves, is told
apart.
"""

import random
from collections import Counter
from collections.abc import Callable

import attrs
import cyclopts
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from virtual import BLOCK, DATA_CENTRE, Lengths, Virtual, trace_lengths

from plancha.contracts import Geometry, Scheduler, Site, Tenant
from plancha.failure import RequestFailed
from plancha.testing.simulation import Simulation
from plancha_allocators.paged import paged
from plancha_schedulers.fair_queue import fair_queue
from plancha_schedulers.priority_preempt import priority_preempt

CONTEXT, SLOTS, STEP_TOKENS, WAITING = 8192, 32, 2048, 1024
TARGETS_S = {0: 2.0, 1: 10.0}
TENANTS = {"interactive": Tenant(tier=0), "batch": Tenant(tier=1)}
QUEUE_TIMEOUT_S = 30.0
START_S = 30.0
SCHEDULERS: dict[str, Callable[[Site], Scheduler]] = {
    "fair-queue": lambda site: fair_queue({}, site),
    "priority-preempt": lambda site: priority_preempt({}, site),
}


@attrs.define(eq=False)
class Books:
    """What became of one tenant's requests."""

    offered: int = 0
    refused: Counter[str | None] = attrs.field(factory=Counter)
    broken: Counter[str | None] = attrs.field(factory=Counter)  # accepted, then ended by an error
    first_token_s: list[float] = attrs.field(factory=list)
    done: int = 0

    @property
    def accepted(self) -> int:
        """Offered and not refused."""
        return self.offered - self.refused.total()

    def in_time(self, target_s: float) -> int:
        """Whose first token came by then."""
        return sum(seconds <= target_s for seconds in self.first_token_s)


class Run:
    """One worker, and clients that come whether or not it can serve them."""

    def __init__(
        self,
        make: Callable[[Site], Scheduler],
        lengths: Lengths,
        *,
        targets: dict[int, float],
    ) -> None:
        site = Site(
            max_sequences=SLOTS,
            max_batched_tokens=STEP_TOKENS,
            max_waiting=WAITING,
            block_size=BLOCK,
            model="none",
            vocabulary=100,
            tenants=TENANTS,
            queue_timeout_s=QUEUE_TIMEOUT_S if targets else 0.0,
            ttft_targets_s=targets,
        )
        blocks = SLOTS * CONTEXT // BLOCK
        geometry = Geometry(blocks=blocks, context_length=CONTEXT, vocabulary=100, stop_ids=())
        executor = Virtual(geometry, DATA_CENTRE)
        self.simulation = Simulation(
            executor, site, make, lambda site: paged({"prefix_cache": False}, site), step_s=0
        )
        self.simulation.clock = executor.clock
        self.books = {name: Books() for name in TENANTS}
        self.start = {name: Books() for name in TENANTS}  # of the first half minute
        self.longest_queue = 0
        self._lengths = lengths
        self._chance = random.Random(0)
        self._waiting: dict[int, tuple[Books, float]] = {}
        self._alive: dict[int, Books] = {}

    @property
    def now(self) -> float:
        """Virtual seconds."""
        return self.simulation.clock()

    def offer(self, tenant: str, arrival_s: float) -> None:
        """A request of the trace's lengths, which may be refused."""
        books = (self.start if arrival_s < START_S else self.books)[tenant]
        books.offered += 1
        prompt, output = self._chance.choice(self._lengths)
        try:
            stream = self.simulation.submit([1] * prompt, output, tenant=tenant)
        except RequestFailed as refused:
            books.refused[refused.failure.code] += 1
            return
        self._waiting[stream] = books, arrival_s
        self._alive[stream] = books

    def step(self) -> bool:
        """One step, and the books of who had its first token or its end in it."""
        stepped = self.simulation.start()
        if stepped is not None:
            self.simulation.commit(stepped)
        self.longest_queue = max(self.longest_queue, self.simulation.planner.waiting_sequences())
        for stream in [each for each in self._waiting if self.simulation.outputs[each]]:
            books, arrival_s = self._waiting.pop(stream)
            books.first_token_s.append(self.now - arrival_s)
        for stream, end in self.simulation.finished.items():
            self._waiting.pop(stream, None)
            books = self._alive.pop(stream)
            if end.failure is None:
                books.done += 1
            else:
                books.broken[end.failure.code] += 1
        self.simulation.finished.clear()
        self.simulation.plans.clear()
        return stepped is not None

    @property
    def alive(self) -> int:
        """Requests accepted and not ended."""
        return len(self._alive)


def capacity(lengths: Lengths) -> float:
    """Requests a second that the worker finishes with a full batch."""
    run = Run(SCHEDULERS["fair-queue"], lengths, targets={})
    while run.now < START_S + 120:
        while run.alive < 2 * SLOTS:
            run.offer("batch", run.now)
        run.step()
    return run.books["batch"].done / (run.now - START_S)


def overloaded(
    make: Callable[[Site], Scheduler], lengths: Lengths, rates: dict[str, float], seconds: float
) -> Run:
    """Poisson arrivals at these rates, then none until all have ended."""
    run = Run(make, lengths, targets=TARGETS_S)
    chance = random.Random(1)
    arrivals = {name: chance.expovariate(rate) for name, rate in rates.items()}
    while True:
        tenant = min(arrivals, key=lambda name: arrivals[name])
        while arrivals[tenant] <= min(run.now, seconds):
            run.offer(tenant, arrivals[tenant])
            arrivals[tenant] += chance.expovariate(rates[tenant])
            tenant = min(arrivals, key=lambda name: arrivals[name])
        if not run.step():
            if run.now >= seconds:
                return run
            run.simulation.clock.advance(max(0.0, arrivals[tenant] - run.now))


def main(*, minutes: float = 10, times: float = 3) -> None:
    """One table: a row for each scheduler and tier."""
    console, (lengths, _) = Console(width=170), trace_lengths(CONTEXT)
    most = capacity(lengths)
    table = Table(
        *(
            "scheduler",
            "tier",
            "times",
            "offered",
            "accepted",
            "TTFT p50",
            "p99",
            "target",
            "in time",
        ),
        *("refused", "broken off", "queue at most", "never ended"),
        title=f"{times:g} times {most:.2f} requests/s for {minutes:g} minutes",
    )
    starts = []
    for share in (0.5, 1.5):
        rates = {"interactive": share * most, "batch": (times - share) * most}
        for name, make in track(SCHEDULERS.items(), "flooding", transient=True):
            run = overloaded(make, lengths, rates, 60 * minutes)
            for tenant, books in run.books.items():
                target_s = TARGETS_S[TENANTS[tenant].tier]
                p50, p99 = np.percentile(books.first_token_s or [np.nan], [50, 99])
                table.add_row(
                    name,
                    f"{TENANTS[tenant].tier}",
                    f"{rates[tenant] / most:g}",
                    f"{books.offered:,}",
                    f"{books.accepted:,}",
                    f"{p50:.2f} s",
                    f"{p99:.2f} s",
                    f"{target_s:g} s",
                    f"{books.in_time(target_s) / max(1, len(books.first_token_s)):.1%}",
                    counted(books.refused),
                    counted(books.broken),
                    f"{run.longest_queue}",
                    f"{run.alive}",
                )
                early = run.start[tenant]
                starts.append(f"{early.accepted - early.in_time(target_s)} of {early.accepted}")
    console.print(table)
    console.print(f"In the first {START_S:g} s late or broken off: {', '.join(starts)}.")


def counted(codes: Counter[str | None]) -> str:
    """As "code: 3"."""
    return ", ".join(f"{code}: {count:,}" for code, count in codes.most_common()) or "0"


if __name__ == "__main__":
    cyclopts.run(main)
