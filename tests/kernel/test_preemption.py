"""Who gives way when blocks run out, and that nobody can tell from the answer."""

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from typing import Any

import attrs
import pytest

from plancha.contracts import Site
from plancha.planning.room import PROTECTED_AFTER
from plancha.sequence import Sequence
from plancha.testing.executors import chain
from plancha_allocators.paged import Paged, paged
from plancha_schedulers.fcfs import Fcfs


def x(tokens: int) -> list[int]:
    return [120] * tokens


def without_cache(site: Site) -> Paged:
    return paged({"prefix_cache": False}, site)


def test_a_recomputed_answer_is_the_undisturbed_one(rig: Any) -> None:
    simulation = attrs.evolve(rig, blocks=12).chain()
    prompts = [x(48), [*x(47), 121]]
    streams = [simulation.submit(prompt, 96) for prompt in prompts]
    simulation.run()
    assert simulation.planner.preemptions >= 1
    for stream, prompt in zip(streams, prompts, strict=True):
        assert simulation.outputs[stream] == chain(prompt, 96)
        assert simulation.finished[stream].output_tokens == 96
        assert simulation.finished[stream].prompt_tokens == 48
    assert simulation.allocator.stats().available == 12


def test_a_replay_computes_prompt_and_output_and_samples_only_at_its_end(rig: Any) -> None:
    # The older needs its 8th block when the newer has 3 + 100 tokens in the pool's other 7.
    simulation = attrs.evolve(rig, blocks=14, allocator=without_cache).chain()
    older, newer = simulation.submit(x(13), 200), simulation.submit(x(3), 150)
    while simulation.planner.preemptions == 0:
        simulation.step()
    assert len(simulation.outputs[newer]) == 100
    simulation.cancel(older)
    before = len(simulation.plans)
    simulation.step()
    simulation.step()
    first, second = simulation.plans[before:]
    assert first.joins[0].token_ids.size == 103
    assert first.joins[0].prompt_tokens == 3
    assert (first.counts.tolist(), first.samples.tolist()) == ([64], [False])
    assert (second.counts.tolist(), second.samples.tolist()) == ([39], [True])
    simulation.run()
    assert simulation.outputs[newer] == chain(x(3), 150)


def test_the_newest_gives_way_once_when_its_blocks_do_for_all(rig: Any) -> None:
    simulation = attrs.evolve(rig, blocks=6, max_batched_tokens=128).chain()
    streams = [simulation.submit(x(tokens), 8) for tokens in (16, 32, 48)]
    simulation.step()  # 1 + 2 + 3 blocks: none is free, and all three cross an edge next
    assert simulation.allocator.stats().available == 0
    simulation.step()
    assert simulation.planner.preemptions == 1
    assert simulation.planner.sequences[streams[2]].slot is None


def test_as_many_victims_go_as_blocks_are_short(rig: Any) -> None:
    simulation = attrs.evolve(rig, blocks=6, max_batched_tokens=128).chain()
    for tokens in (32, 48, 16):  # the newest holds one block, two are needed
        simulation.submit(x(tokens), 8)
    simulation.step()
    simulation.step()
    assert simulation.planner.preemptions == 2


def test_a_preempted_sequence_returns_before_newcomers(rig: Any) -> None:
    simulation = attrs.evolve(rig, blocks=6, max_batched_tokens=128).chain()
    first, second = simulation.submit(x(32), 40), simulation.submit(x(48), 20)
    simulation.step()
    newcomers = [simulation.submit([65 + i] * 20, 4) for i in range(3)]
    while not simulation.planner.preemptions:
        simulation.step()
    order: list[int] = []
    while simulation.planner.sequences:
        simulation.step()
        order += [join.stream for join in simulation.plans[-1].joins]
    assert order[0] == second
    assert order[1:] == newcomers
    assert simulation.outputs[second] == chain(x(48), 20)
    assert simulation.outputs[first] == chain(x(32), 40)


@pytest.mark.parametrize(
    ("before", "goes"), [(PROTECTED_AFTER - 1, "newest"), (PROTECTED_AFTER, "needy")]
)
def test_who_was_preempted_three_times_gives_way_to_the_leader_alone(
    rig: Any, before: int, goes: str
) -> None:
    simulation = attrs.evolve(rig, blocks=6, max_batched_tokens=128).chain()
    prompts = [[65] * 20, [66] * 32, [67] * 30]  # two blocks each: none is left
    streams = [simulation.submit(prompt, 40) for prompt in prompts]
    leader, needy, newest = (simulation.planner.sequences[stream] for stream in streams)
    newest.preemptions = before
    simulation.step()
    simulation.step()  # the second needs its third block
    left = {"needy": needy, "newest": newest}[goes]
    assert [each for each in (leader, needy, newest) if each.slot is None] == [left]
    simulation.run()
    for stream, prompt in zip(streams, prompts, strict=True):
        assert simulation.outputs[stream] == chain(prompt, 40)


@attrs.define
class NamesTheWrongVictims:
    """Offers the leader, the needy one and everyone else, in the worst order."""

    inner: Fcfs = attrs.field(factory=Fcfs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def victims(self, running: Seq[Sequence], for_: Sequence) -> Iterator[Sequence]:
        return iter([for_, *sorted(running, key=lambda sequence: sequence.arrival)])


def test_no_scheduler_can_evict_the_leader_or_who_grew_in_this_plan(rig: Any) -> None:
    simulation = attrs.evolve(
        rig, blocks=12, max_batched_tokens=128, scheduler=lambda site: NamesTheWrongVictims()
    ).chain()
    prompts = [x(20 + i) for i in range(4)]
    streams = [simulation.submit(prompt, 60) for prompt in prompts]
    leader = streams[0]
    while simulation.planner.sequences:
        simulation.step()
        for plan in simulation.plans[-1:]:
            left = set(plan.left.tolist())
            assert not left & set(plan.grown_slots.tolist()) - {join.slot for join in plan.joins}
        if leader in simulation.planner.sequences:
            assert simulation.planner.sequences[leader].preemptions == 0
    assert simulation.planner.preemptions > 0
    for stream, prompt in zip(streams, prompts, strict=True):
        assert simulation.outputs[stream] == chain(prompt, 60)


def test_alone_a_sequence_never_preempts_itself(rig: Any) -> None:
    simulation = attrs.evolve(rig, blocks=8).chain()
    stream = simulation.submit(x(100))  # 128 slots in all, no max_tokens: it ends at the wall
    simulation.run()
    assert simulation.planner.preemptions == 0
    assert simulation.outputs[stream] == chain(x(100), 28)
    assert simulation.finished[stream].reason == "length"
