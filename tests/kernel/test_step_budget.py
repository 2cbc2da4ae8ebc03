"""A step's time: the fit, and how it keeps a long prompt from freezing everybody's stream."""

import random
from typing import Any

import attrs
import pytest

from plancha.contracts import Executor, Geometry, Progress
from plancha.planning.step_cost import StepCost
from plancha.plans import Plan, StepDone
from plancha.testing.executors import ChainExecutor

A_S, B_S, C_S = 0.010, 0.0005, 2e-7


def seconds(new: int, attended: float) -> float:
    return A_S + B_S * new + C_S * attended


def attended_by(plan: Plan) -> float:
    """Every computed token looks at itself and at all before it."""
    pairs = zip(plan.starts.tolist(), plan.counts.tolist(), strict=True)
    return float(sum(count * start + count * (count + 1) / 2 for start, count in pairs))


@attrs.define(eq=False)
class Timed:
    """An executor whose steps take what the formula says."""

    inner: Executor

    def load(self, progress: Progress) -> Geometry:
        return self.inner.load(progress)

    def step(self, plan: Plan) -> StepDone:
        took = seconds(int(plan.counts.sum()), attended_by(plan))
        return attrs.evolve(self.inner.step(plan), seconds=took)

    def reset(self) -> None:
        self.inner.reset()

    def close(self) -> None:
        self.inner.close()


def test_the_fit_finds_the_three_coefficients() -> None:
    cost, randomness = StepCost(), random.Random(3)
    nothing_known = cost.prefill_tokens(0.1, decodes=4, attended_tokens=1000, start=0)
    assert nothing_known is None
    for _ in range(300):
        new, attended = randomness.randrange(1, 512), randomness.randrange(1, 200_000)
        cost.observe(new, attended, seconds(new, attended) * randomness.uniform(0.97, 1.03))
    assert cost.per_step_s == pytest.approx(A_S, abs=0.004)
    assert cost.per_new_token_s == pytest.approx(B_S, rel=0.05)
    assert cost.per_attended_token_s == pytest.approx(C_S, rel=0.05)
    tokens = cost.prefill_tokens(0.3, decodes=8, attended_tokens=4000, start=2000)
    assert tokens is not None
    looked_at = 4000 + tokens * 2000 + tokens * tokens / 2
    assert seconds(8 + tokens, looked_at) == pytest.approx(0.3, rel=0.05)


@pytest.mark.parametrize("streams", [1, 8, 32])
def test_long_steady_decoding_does_not_unlearn_what_prefill_costs(streams: int) -> None:
    cost, randomness = StepCost(), random.Random(streams)

    def see(new: int, attended: float) -> None:
        cost.observe(new, attended, seconds(new, attended) * randomness.uniform(0.95, 1.05))

    for _ in range(200):
        see(randomness.randrange(1, 512), randomness.randrange(1, 200_000))
    for step in range(10_000):
        see(streams, streams * (500 + step % 1000))
    tokens = cost.prefill_tokens(0.25, decodes=streams, attended_tokens=1000 * streams, start=0)
    assert tokens is not None
    took = seconds(streams + tokens, 1000 * streams + tokens * tokens / 2)
    assert took == pytest.approx(0.25, rel=0.35)
    for _ in range(400):
        see(randomness.randrange(1, 512), randomness.randrange(1, 200_000))
    assert cost.per_new_token_s == pytest.approx(B_S, rel=0.1)


def test_the_fit_follows_a_machine_that_slows_down() -> None:
    cost, randomness = StepCost(), random.Random(4)
    for slowness in (1.0, 3.0):
        for _ in range(400):
            new, attended = randomness.randrange(1, 512), randomness.randrange(1, 200_000)
            cost.observe(new, attended, slowness * seconds(new, attended))
    assert cost.per_new_token_s == pytest.approx(3 * B_S, rel=0.05)


def long_prompt(rig: Any, target_s: float) -> tuple[Any, list[Plan], int]:
    """Four streams, and an 8,192-token prompt beside them; the plans until it is computed."""
    sized = attrs.evolve(rig, blocks=700, context_length=9000, max_batched_tokens=2048)
    executor = Timed(ChainExecutor(sized.geometry, sized.block_size))
    simulation = sized.simulate(executor, inter_token_target_s=target_s)
    for i in range(4):
        simulation.submit([65 + i] * 30, 600)
    for i in range(20):
        simulation.submit([40 + i] * (10 * i + 5), 3)  # lengths for the fit to see
        simulation.step()
    long = simulation.submit([90 + i % 5 for i in range(8192)], 1)
    begun = len(simulation.plans)
    while long not in simulation.finished:
        simulation.step()
    return simulation, simulation.plans[begun:], long


def test_a_long_prompt_keeps_the_running_streams_at_their_target(rig: Any) -> None:
    target_s = 0.060
    _, plans, _ = long_prompt(rig, target_s)
    took = [seconds(int(plan.counts.sum()), attended_by(plan)) for plan in plans]
    assert max(took[3:]) < 1.25 * target_s
    assert sum(took) / len(took) > 0.5 * target_s  # and the step is used
    assert all(plan.samples.sum() >= 4 for plan in plans)
    _, free, _ = long_prompt(rig, 0.0)
    assert max(seconds(int(p.counts.sum()), attended_by(p)) for p in free) > 10 * target_s


def test_the_target_never_takes_prefill_below_a_block(rig: Any) -> None:
    _, plans, _ = long_prompt(rig, 0.001)  # not to be met at all
    prefill = [int(plan.counts[plan.counts > 1].sum()) for plan in plans]
    assert min(prefill[:-1]) >= 15  # a rest of one token counts as a decode
    assert sorted(prefill)[len(prefill) // 2] == 16


def test_the_target_binds_only_while_somebody_decodes(rig: Any) -> None:
    sized = attrs.evolve(rig, blocks=300, context_length=4096, max_batched_tokens=256)
    executor = Timed(ChainExecutor(sized.geometry, sized.block_size))
    simulation = sized.simulate(executor, inter_token_target_s=0.02)
    for i in range(20):
        simulation.submit([40 + i] * (10 * i + 5), 3)
        simulation.step()
    simulation.run()
    alone = simulation.submit([120] * 1000, 1)
    simulation.step()
    assert simulation.plans[-1].counts.tolist() == [256]
    simulation.run()
    assert alone in simulation.finished
