"""Any order of requests, cancels, truncations and failing steps keeps books and answers right."""

from typing import Any

import attrs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plancha.testing.executors import chain

prompt = st.integers(1, 80)
tokens = st.integers(0, 60)
which = st.integers(0, 30)
move = st.one_of(
    st.tuples(st.just("submit"), prompt, tokens),
    st.tuples(st.just("submit"), prompt, tokens),
    st.tuples(st.just("cancel"), which, st.just(0)),
    st.tuples(st.just("cancel in flight"), which, st.just(0)),
    st.tuples(st.just("truncate"), which, st.integers(0, 9)),
    st.tuples(st.just("fail"), st.just(0), st.just(0)),
    st.tuples(st.just("pause"), which, st.just(0)),
    st.tuples(st.just("pause in flight"), which, st.just(0)),
    st.tuples(st.just("resume"), which, st.just(0)),
    st.tuples(st.just("steps"), st.integers(1, 12), st.just(0)),
)


class Traffic:
    """Plays moves on a simulation and remembers what was asked."""

    def __init__(self, simulation: Any) -> None:
        self.simulation = simulation
        self.asked: dict[int, tuple[list[int], int]] = {}

    def play(self, kind: str, first: int, second: int) -> None:
        simulation = self.simulation
        alive = sorted(simulation.planner.sequences)
        if kind == "submit":
            ids = [32 + (first * 7 + i) % 95 for i in range(first)]
            self.asked[simulation.submit(ids, second)] = ids, second
        elif kind == "steps":
            for _ in range(first):
                simulation.step()
        elif kind == "fail":
            if simulation.start() is not None:
                simulation._executor.reset()
                simulation.planner.fail(simulation.clock())
        elif kind.endswith("in flight"):
            plan = simulation.start()
            if alive:
                getattr(simulation, kind.split()[0])(alive[first % len(alive)])
            if plan is not None:
                simulation.commit(plan)
        elif alive and kind in ("cancel", "pause", "resume"):
            getattr(simulation, kind)(alive[first % len(alive)])
        elif alive:
            simulation.planner.truncate(alive[first % len(alive)], second, 0.0)
        simulation.take_frame()
        simulation.check_books()

    def check_meters(self) -> None:
        """What was measured is what was told: each prompt token once, and no token of nobody."""
        meters, ends = self.simulation.planner.meters, self.simulation.finished.values()
        prompts = meters.computed_prompt_tokens + meters.cached_prompt_tokens
        assert prompts == meters.prompts.total() == sum(end.prompt_tokens for end in ends)
        outputs = [len(output) for output in self.simulation.outputs.values()]
        assert meters.generated.total() == sum(outputs)
        assert meters.ended.total() == len(ends)
        assert meters.first_token.count == sum(1 for output in outputs if output)
        assert meters.inter_token.count <= sum(output - 1 for output in outputs if output)

    def check_answers(self) -> None:
        for stream, (ids, asked) in self.asked.items():
            expected = chain(ids, asked)
            output = self.simulation.outputs[stream]
            finished = self.simulation.finished[stream]
            assert output == expected[: len(output)]
            assert finished.output_tokens <= len(output)
            assert finished.prompt_tokens <= len(ids)
            if finished.reason == "length":
                assert output == expected
                assert finished.prompt_tokens == len(ids)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(moves=st.lists(move, max_size=40), blocks=st.integers(10, 24))
def test_every_stream_ends_once_with_its_own_tokens(
    rig: Any, moves: list[tuple[str, int, int]], blocks: int
) -> None:
    simulation = attrs.evolve(rig, blocks=blocks, max_sequences=4).chain()
    traffic = Traffic(simulation)
    for kind, first, second in moves:
        traffic.play(kind, first, second)
    for stream in simulation.planner.sequences:
        simulation.resume(stream)
    simulation.run()
    assert set(simulation.finished) == set(traffic.asked)
    assert simulation.allocator.stats().available == blocks
    traffic.check_answers()
    traffic.check_meters()
