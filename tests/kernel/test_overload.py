"""More than there is room for: bounded queues, refusals with numbers, and everybody ends once."""

from collections import Counter
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plancha.contracts import Tenant
from plancha.failure import Failure, RequestFailed
from plancha_schedulers.fair_queue import fair_queue
from plancha_schedulers.priority_preempt import priority_preempt

PROMPT = [120] * 33
TENANTS = {"a": Tenant(max_waiting=16), "b": Tenant(max_waiting=16)}


def attempt(simulation: Any, tenant: str, **fields: Any) -> int | Failure:
    try:
        stream: int = simulation.submit(PROMPT, 20, tenant=tenant, **fields)
        return stream
    except RequestFailed as refused:
        return refused.failure


def crowd(
    simulation: Any, tenant: str, requests: int, **fields: Any
) -> tuple[list[int], Counter[str | None]]:
    """Streams that were accepted, and the codes of the others."""
    found = [attempt(simulation, tenant, **fields) for _ in range(requests)]
    codes = Counter(each.code for each in found if isinstance(each, Failure))
    return [each for each in found if isinstance(each, int)], codes


def fair(rig: Any) -> Any:
    return attrs.evolve(rig, max_waiting=64, scheduler=lambda site: fair_queue({}, site))


def test_a_crowd_of_one_tenant_runs_waits_or_is_refused_and_another_is_let_in(rig: Any) -> None:
    simulation = fair(rig).chain(tenants=TENANTS, queue_timeout_s=2.0)
    accepted, codes = crowd(simulation, "a", 100)
    assert (len(accepted), codes) == (8 + 16, {"tenant_queue_full": 76})
    (guest,), _ = crowd(simulation, "b", 1)
    while simulation.planner.batch.free_slots:
        simulation.step()
    assert simulation.planner.load().waiting == 16 + 1
    simulation.clock.advance(2.0)
    simulation.step()
    ends = Counter(end.failure.code for end in simulation.finished.values())
    assert ends == {"queue_timeout": 17}
    assert all(simulation.outputs[stream] == [] for stream in simulation.finished)
    simulation.run()
    assert len(simulation.finished) == len(accepted) + 1
    assert simulation.finished[guest].reason == "length"  # fair shares: it ran at once


@pytest.mark.parametrize("steps_between", [0, 1, 2])
def test_how_fast_a_crowd_comes_makes_no_difference_to_how_many_are_let_in(
    rig: Any, steps_between: int
) -> None:
    simulation = fair(rig).by_prompt(lambda prompt: [65])
    simulation.planner._site.tenants = TENANTS
    count = 0
    for _ in range(30):
        count += isinstance(attempt(simulation, "a"), int)
        for _ in range(steps_between if count < 9 else 0):
            simulation.step()
    assert count == 8 + 16


def test_outputs_and_prompts_of_one_request_count_one_by_one(rig: Any) -> None:
    simulation = fair(rig).chain(tenants=TENANTS)
    accepted, codes = crowd(simulation, "a", 6, n=5)
    assert (len(accepted), codes) == (4, {"tenant_queue_full": 2})
    (small,), _ = crowd(simulation, "a", 1, n=4)
    assert len(simulation.outputs) == 24
    simulation.cancel(small)
    assert isinstance(attempt(simulation, "a"), int)
    assert isinstance(attempt(simulation, "a"), Failure)


def test_a_request_that_no_queue_could_ever_hold_is_a_mistake_told_in_numbers(rig: Any) -> None:
    simulation = fair(rig).chain(tenants={"a": Tenant(max_waiting=16, max_running=2)})
    failure = attempt(simulation, "a", n=19)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.code) == ("invalid", "too_many_sequences")
    assert "19" in failure.message and "18" in failure.message
    assert isinstance(attempt(simulation, "a", n=18), int)


def test_what_can_never_fit_is_told_even_when_the_queue_is_full(rig: Any) -> None:
    simulation = attrs.evolve(rig, max_sequences=1, max_waiting=1).chain()
    crowd(simulation, "a", 2)
    with pytest.raises(RequestFailed) as refused:
        simulation.submit([120] * 300, None)
    assert refused.value.failure.code == "context_length_exceeded"


def test_the_whole_queue_has_a_bound_of_its_own(rig: Any) -> None:
    simulation = fair(rig).chain(tenants={name: Tenant(max_waiting=30) for name in "abc"})
    per_tenant = {name: len(crowd(simulation, name, 40)[0]) for name in "abc"}
    assert per_tenant == {"a": 8 + 30, "b": 64 - 30, "c": 0}
    assert crowd(simulation, "c", 1)[1] == {"queue_full": 1}


def test_who_floods_without_a_bound_leaves_places_for_others(rig: Any) -> None:
    simulation = fair(rig).chain(tenants={name: Tenant() for name in "abc"})
    accepted, codes = crowd(simulation, "a", 100)
    assert (len(accepted), set(codes)) == (8 + 32, {"tenant_queue_full"})
    while simulation.planner.batch.free_slots:
        simulation.step()
    assert len(crowd(simulation, "b", 100)[0]) == 16  # half of what "a" left
    assert len(crowd(simulation, "c", 100)[0]) == 8


def test_alone_a_tenant_may_fill_the_queue(rig: Any) -> None:
    simulation = fair(rig).chain(tenants={"a": Tenant()})
    accepted, codes = crowd(simulation, "a", 100)
    assert (len(accepted), set(codes)) == (8 + 64, {"queue_full"})


def test_a_slot_that_a_running_limit_keeps_from_a_tenant_is_not_free_for_it(rig: Any) -> None:
    simulation = fair(rig).chain(tenants={"a": Tenant(max_waiting=3, max_running=2)})
    assert len(crowd(simulation, "a", 10)[0]) == 2 + 3
    simulation.step()
    assert crowd(simulation, "a", 1)[1] == {"tenant_queue_full": 1}


def test_slots_without_blocks_are_not_free_for_anybody(rig: Any) -> None:
    simulation = attrs.evolve(fair(rig), blocks=6, max_waiting=4).chain()
    assert len(crowd(simulation, "a", 20)[0]) == 8 + 4
    while len(simulation.finished) < 8:
        simulation.step()
    assert simulation.planner.batch.free_slots > 0
    assert simulation.planner.waiting_sequences() >= 1
    accepted, codes = crowd(simulation, "a", 20)
    assert simulation.planner.waiting_sequences() == 4
    assert codes["queue_full"] == 20 - len(accepted)


def test_when_to_try_again_follows_the_backlog_and_the_pace(rig: Any) -> None:
    told = {}
    for waiting in (8, 16, 32):
        simulation = attrs.evolve(fair(rig), max_sequences=2, max_waiting=waiting).chain()
        for _ in range(2000):  # two run 20 steps of 0.02 s each, so five join in a second
            crowd(simulation, "a", 1)
            simulation.step()
        while not isinstance(failure := attempt(simulation, "a"), Failure):
            pass
        assert failure.retry_after_s is not None
        told[waiting] = failure.retry_after_s
    for waiting, seconds in told.items():
        assert abs(seconds - waiting / 5) <= 1 + waiting / 25, told


def test_before_anything_was_measured_trying_again_is_advised_at_once(rig: Any) -> None:
    simulation = fair(rig).chain(tenants=TENANTS)
    crowd(simulation, "a", 24)
    failure = attempt(simulation, "a")
    assert isinstance(failure, Failure) and failure.retry_after_s == 1


def test_a_client_that_leaves_the_queue_makes_room_at_once(rig: Any) -> None:
    simulation = fair(rig).chain(tenants=TENANTS)
    accepted, _ = crowd(simulation, "a", 30)
    simulation.step()
    for stream in accepted[-5:]:
        simulation.cancel(stream)
        assert simulation.finished[stream].prompt_tokens == 0
    assert len(crowd(simulation, "a", 10)[0]) == 5


SCHEDULERS = {
    "fair-queue": lambda site: fair_queue({}, site),
    "priority-preempt": lambda site: priority_preempt({}, site),
}
MANY = {
    "a": Tenant(max_waiting=5, tokens_per_minute=3000),
    "b": Tenant(max_waiting=3, max_running=2, tier=1),
    "c": Tenant(tier=1, weight=2),
    "d": Tenant(tier=2, tokens_per_minute=600),
}
TARGETS = {0: 0.3, 1: 0.6}
which = st.integers(0, 40)
move = st.one_of(
    st.tuples(st.just("submit"), st.sampled_from("abcd"), st.integers(1, 70), st.integers(1, 3)),
    st.tuples(st.just("submit"), st.sampled_from("abcd"), st.integers(1, 70), st.integers(1, 3)),
    st.tuples(st.just("timed"), st.sampled_from("abcd"), st.integers(1, 70), st.just(1)),
    st.tuples(st.just("cancel"), which, st.just(0), st.just(0)),
    st.tuples(st.just("pause"), which, st.just(0), st.just(0)),
    st.tuples(st.just("resume"), which, st.just(0), st.just(0)),
    st.tuples(st.just("fail"), st.just(0), st.just(0), st.just(0)),
    st.tuples(st.just("time"), st.integers(1, 30), st.just(0), st.just(0)),
    st.tuples(st.just("steps"), st.integers(1, 12), st.just(0), st.just(0)),
)


class Crowds:
    """Plays moves on a simulation, and after each of them looks at the books."""

    def __init__(self, simulation: Any, max_waiting: int) -> None:
        self.simulation = simulation
        self.max_waiting = max_waiting
        self.accepted: set[int] = set()

    def play(self, kind: str, first: Any, second: int, third: int) -> None:
        simulation = self.simulation
        alive = sorted(simulation.planner.sequences)
        if kind in ("submit", "timed"):
            timeout_s = 0.5 if kind == "timed" else None
            self.submit(first, second, n=third, timeout_s=timeout_s)
        elif kind == "steps":
            for _ in range(first):
                simulation.step()
        elif kind == "time":
            simulation.clock.advance(first / 10)
        elif kind == "fail":
            if simulation.start() is not None:
                simulation._executor.reset()
                simulation.planner.fail(simulation.clock())
        elif alive:
            getattr(simulation, kind)(alive[first % len(alive)])
        simulation.take_frame()
        self.check()

    def submit(self, tenant: str, prompt: int, **fields: Any) -> None:
        try:
            stream = self.simulation.submit([120] * prompt, 12, tenant=tenant, **fields)
        except RequestFailed as refused:
            assert refused.failure.kind == "busy"
            assert refused.failure.retry_after_s is not None
            assert refused.failure.retry_after_s >= 1
            return
        self.accepted |= set(range(stream, stream + fields["n"]))

    def check(self) -> None:
        planner = self.simulation.planner
        backlog, slots = planner.overload.backlog, len(planner.batch.sequences)
        alive = Counter(each.tenant for each in planner.sequences.values())
        assert +backlog._accepted == alive
        new = [each for each in planner.sequences.values() if not each.joined_once]
        lines = {
            (tier, tenant): (line.sequences, line.tokens)
            for tier, tenants in backlog._lines.items()
            for tenant, line in tenants.items()
        }
        assert {key: count for key, (count, _) in lines.items()} == Counter(
            (each.tier, each.tenant) for each in new
        )
        assert sum(tokens for _, tokens in lines.values()) == sum(
            each.prompt_tokens for each in new
        )
        assert alive.total() <= slots + self.max_waiting
        for name, tenant in MANY.items():
            if tenant.max_waiting is not None:
                most = tenant.max_waiting + min(slots, tenant.max_running or slots)
                assert alive[name] <= most, name


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(moves=st.lists(move, max_size=50), blocks=st.integers(12, 30))
def test_whoever_is_accepted_ends_once_and_no_queue_outgrows_its_bound(
    rig: Any, moves: list[tuple[str, Any, int, int]], blocks: int, scheduler: str
) -> None:
    small = attrs.evolve(
        rig, blocks=blocks, max_sequences=3, max_waiting=9, scheduler=SCHEDULERS[scheduler]
    )
    simulation = small.chain(tenants=MANY, queue_timeout_s=1.5, ttft_targets_s=TARGETS)
    crowds = Crowds(simulation, 9)
    for each in moves:
        crowds.play(*each)
    for stream in list(simulation.planner.sequences):
        simulation.resume(stream)
    simulation.run()
    assert set(simulation.finished) == crowds.accepted
    assert simulation.allocator.stats().available == blocks
    assert simulation.planner.deadlines.next_s is None
    crowds.check()
