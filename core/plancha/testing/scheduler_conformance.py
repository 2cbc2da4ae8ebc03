"""What every scheduler must get right, shown alone and in a whole simulated worker.

from plancha.testing.scheduler_conformance import check_scheduler

def test_mine_keeps_the_contract() -> None:
    check_scheduler(lambda site: mine({}, site), lambda site: paged({}, site))
"""

import random
from collections.abc import Callable
from itertools import islice

import attrs
import numpy as np

from plancha.contracts import Allocator, Explain, Geometry, Scheduler, Site, Tenant
from plancha.messages import InferenceRequest
from plancha.plans import Plan
from plancha.sampling import Sampling
from plancha.sequence import Sequence
from plancha.testing.executors import ChainExecutor, chain
from plancha.testing.simulation import Simulation

MakeScheduler = Callable[[Site], Scheduler]
MakeAllocator = Callable[[Site], Allocator]

TENANTS = {
    "even": Tenant(),
    "heavy": Tenant(weight=3.0),
    "limited": Tenant(max_running=1),
    "later": Tenant(tier=1),
    "last": Tenant(tier=2, weight=0.5),
}
NAMES = (*TENANTS, "unnamed")
SITE = Site(
    max_sequences=4,
    max_batched_tokens=64,
    max_waiting=1000,
    block_size=16,
    model="none",
    vocabulary=128,
    tenants=TENANTS,
)
STEP_S = 0.1


def check_scheduler(
    make: MakeScheduler, allocator: MakeAllocator, *, seeds: int = 5, most_steps: int = 1500
) -> None:
    """Every check below, the random ones once a seed. Raises `AssertionError` that says what broke.

    `most_steps`, each of `STEP_S` virtual seconds, are how long a sequence may take to its end
    while others flood the worker.
    """
    for seed in range(seeds):
        check_order(make, seed)
        check_traffic(make, allocator, seed)
        check_replay(make, allocator, seed)
        check_slots_are_used(make, allocator, seed)
    for tenant in NAMES:
        check_nobody_starves(make, allocator, tenant, most_steps)


def check_order(make: MakeScheduler, seed: int, *, moves: int = 200) -> None:
    """Random arrivals, joins, preemptions and endings, alone: who waits is offered, once each."""
    order = Order(make(attrs.evolve(SITE, geometry=_geometry(64))), random.Random(seed), seed)
    for _ in range(moves):
        order.move()
        order.look()


def check_traffic(make: MakeScheduler, allocator: MakeAllocator, seed: int) -> None:
    """A pool much too small, cancels at any moment: everyone ends once, with its own tokens."""
    traffic = Traffic(make, allocator, seed, blocks=12)
    traffic.play()
    traffic.simulation.run()
    for stream, (prompt, tokens) in traffic.asked.items():
        output, expected = traffic.simulation.outputs[stream], chain(prompt, tokens)
        cancelled = traffic.simulation.finished[stream].reason == "cancelled"
        right = expected[: len(output)] if cancelled else expected
        assert output == right, f"seed {seed}: stream {stream} has tokens that are not its own"


def check_replay(make: MakeScheduler, allocator: MakeAllocator, seed: int) -> None:
    """The same traffic gives the same plans."""
    first, second = (Traffic(make, allocator, seed, blocks=12) for _ in range(2))
    first.play()
    second.play()
    pairs = zip(first.simulation.plans, second.simulation.plans, strict=False)
    for number, (one, other) in enumerate(pairs):
        same = _shape(one) == _shape(other)
        assert same, f"seed {seed}: plan {number} differs when the same traffic comes again"
    assert len(first.simulation.plans) == len(second.simulation.plans), f"seed {seed}"


def check_slots_are_used(make: MakeScheduler, allocator: MakeAllocator, seed: int) -> None:
    """With blocks and budget for all, nobody waits beside an empty slot but by a tenant's limit."""
    traffic = Traffic(make, allocator, seed, blocks=256, max_batched_tokens=1024)
    planner = traffic.simulation.planner

    def look() -> None:
        idle = planner.batch.free_slots
        held = [each for each in planner.sequences.values() if each.slot is None]
        held = [each for each in held if each.tenant != "limited" and each.parent is None]
        assert not (idle and held), (
            f"seed {seed}, plan {len(traffic.simulation.plans)}: {idle} slots are empty while "
            f"streams {[each.stream for each in held]} wait"
        )

    traffic.play(look)


def check_nobody_starves(
    make: MakeScheduler, allocator: MakeAllocator, tenant: str, most_steps: int
) -> None:
    """A long prompt among short ones of the best tier that never cease."""
    simulation = _simulate(make, allocator, SITE, blocks=24)
    flood = _Flood(simulation)
    flood.fill(20)
    quiet = simulation.submit([99] * 120, 30, tenant=tenant)
    for _ in range(most_steps):
        flood.fill(30)
        simulation.step()
        if quiet in simulation.finished:
            return
    state = "runs" if simulation.planner.sequences[quiet].joined_once else "never joined"
    raise AssertionError(f"tenant {tenant}: after {most_steps} steps its only sequence {state}")


class Order:
    """A scheduler without a planner, and beside it who waits, who runs and who is gone."""

    def __init__(self, scheduler: Scheduler, randomness: random.Random, seed: int) -> None:
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self._scheduler = scheduler
        self._random = randomness
        self._where = f"seed {seed}"
        self._now = 0.0
        self._arrivals = 0

    def move(self) -> None:
        """One thing that may happen to a scheduler."""
        self._now += self._random.choice([0.0, 0.1, 20.0])
        kind = self._random.choice(["arrives"] * 3 + ["joins"] * 2 + ["returns", "ends", "charge"])
        if kind == "arrives":
            self._arrives()
        elif kind == "joins" and self.waiting:
            self._joins()
        elif kind == "returns" and self.running:
            self._returns()
        elif kind == "ends" and self.waiting + self.running:
            self._ends()
        elif kind == "charge":
            tenants = {sequence.tenant for sequence in self.running}
            self._scheduler.charge({tenant: self._random.randrange(1, 9) for tenant in tenants})

    def look(self) -> None:
        """Who waits is offered once; nobody else is; looking changes nothing; victims run."""
        offered = self._offered()
        missing = [each.stream for each in self.waiting if each not in offered]
        assert not missing, f"{self._where}: streams {missing} wait and are not offered"
        extra = [each.stream for each in offered if each not in self.waiting]
        assert not extra, f"{self._where}: streams {extra} do not wait and are offered"
        assert len(offered) == len(set(offered)), f"{self._where}: somebody is offered twice"
        next(iter(self._scheduler.waiting(self._now)), None)
        assert self._offered() == offered, f"{self._where}: a look has changed the order"
        self._look_at_reasons(offered)
        for for_ in self.running + self.waiting[:3]:
            victims = list(islice(self._scheduler.victims(self.running, for_), 1000))
            strangers = [each.stream for each in victims if each not in self.running]
            assert not strangers, f"{self._where}: victims {strangers} do not run"
            assert len(victims) == len(set(victims)), f"{self._where}: a victim is named twice"

    def _look_at_reasons(self, offered: list[Sequence]) -> None:
        """Of a scheduler that gives any: the first waits for nobody, and asking changes nothing."""
        why: Explain | None = getattr(self._scheduler, "why", None)
        if why is None or not offered:
            return
        reasons = [why(each) for each in offered]
        assert reasons[0] is None, f"{self._where}: the first waits for {reasons[0]!r}"
        texts = [each is None or isinstance(each, str) for each in reasons]
        assert all(texts), f"{self._where}: reasons {reasons} are not all text"
        assert self._offered() == offered, f"{self._where}: a question has changed the order"

    def _offered(self) -> list[Sequence]:
        return list(islice(self._scheduler.waiting(self._now), 2 * len(self.waiting) + 2))

    def _arrives(self) -> None:
        tenant = self._random.choice(NAMES)
        prompt = np.full(self._random.randrange(1, 50), 65, np.int32)
        request = InferenceRequest(
            id=str(self._arrivals),
            tenant=tenant,
            prompts=(prompt,),
            sampling=Sampling(),
            max_tokens=8,
        )
        sequence = Sequence(
            request=request,
            stream=self._arrivals,
            arrival=self._arrivals,
            arrived_s=self._now,
            prompt_tokens=prompt.size,
            token_ids=prompt,
            length=prompt.size,
            max_length=prompt.size + 8,
            stop_ids=(),
            seed=0,
            tier=SITE.tenant(tenant).tier,
        )
        self._arrivals += 1
        self.waiting.append(sequence)
        self._scheduler.add(sequence, self._now)

    def _joins(self) -> None:
        """Not always the first: it may not fit."""
        sequence = self._random.choice(self._offered()[:3])
        sequence.slot = len(self.running)
        self._scheduler.joined(sequence, self._random.randrange(sequence.prompt_tokens))
        sequence.joined_once = True
        self.waiting.remove(sequence)
        self.running.append(sequence)

    def _returns(self) -> None:
        sequence = self.running.pop(self._random.randrange(len(self.running)))
        sequence.slot = None
        sequence.preemptions += 1
        self.waiting.append(sequence)
        self._scheduler.add(sequence, self._now)

    def _ends(self) -> None:
        sequence = self._random.choice(self.waiting + self.running)
        (self.running if sequence in self.running else self.waiting).remove(sequence)
        sequence.slot = None
        self._scheduler.remove(sequence)


class Traffic:
    """Requests, cancels and steps in a random order that the seed alone decides."""

    def __init__(
        self,
        make: MakeScheduler,
        allocator: MakeAllocator,
        seed: int,
        *,
        blocks: int,
        max_batched_tokens: int = 64,
    ) -> None:
        site = attrs.evolve(SITE, max_batched_tokens=max_batched_tokens)
        self.simulation = _simulate(make, allocator, site, blocks=blocks)
        self.asked: dict[int, tuple[list[int], int]] = {}
        self._random = random.Random(seed)

    def play(self, look: Callable[[], None] = lambda: None, *, moves: int = 120) -> None:
        """`look` is called after every plan."""
        for _ in range(moves):
            kind = self._random.random()
            if kind < 0.45:
                self._submit()
            elif kind < 0.55 and self.simulation.planner.sequences:
                self.simulation.cancel(self._anybody())
            else:
                self._step(look)

    def _submit(self) -> None:
        prompt = [32 + self._random.randrange(95)] * self._random.randrange(1, 60)
        tokens, n = self._random.randrange(1, 40), self._random.choice([1, 1, 2])
        tenant = self._random.choice(NAMES)
        first = self.simulation.submit(
            prompt, tokens, tenant=tenant, n=n, sampling=Sampling(seed=1)
        )
        self.asked |= {stream: (prompt, tokens) for stream in range(first, first + n)}

    def _step(self, look: Callable[[], None]) -> None:
        plan = self.simulation.start()
        look()
        if plan is not None:
            if self._random.random() < 0.1:
                self.simulation.cancel(self._anybody())
            self.simulation.commit(plan)
        self.simulation.check_books()

    def _anybody(self) -> int:
        return self._random.choice(sorted(self.simulation.planner.sequences))


@attrs.define
class _Flood:
    """One tenant of the best tier that never has few sequences waiting."""

    simulation: Simulation
    _submitted: int = attrs.field(default=0, init=False)

    def fill(self, waiting: int) -> None:
        while self.simulation.planner.waiting_sequences() < waiting:
            self._submitted += 1
            self.simulation.submit([32 + self._submitted % 90] * 8, 12, tenant="even")


def _simulate(
    make: MakeScheduler, allocator: MakeAllocator, site: Site, *, blocks: int
) -> Simulation:
    executor = ChainExecutor(_geometry(blocks), site.block_size)
    return Simulation(executor, site, make, allocator, step_s=STEP_S)


def _geometry(blocks: int) -> Geometry:
    return Geometry(blocks=blocks, context_length=160, vocabulary=128, stop_ids=())


def _shape(plan: Plan) -> tuple[object, ...]:
    """All of a plan that a scheduler can influence."""
    joins = tuple((join.slot, join.stream) for join in plan.joins)
    columns = (plan.left, plan.grown_slots, plan.grown_blocks, plan.slots, plan.starts, plan.counts)
    return joins, *(tuple(column.tolist()) for column in columns)
