"""What fair queueing gives each tenant, in virtual time; the planner is real."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plancha.contracts import Scheduler, Site, Tenant
from plancha.messages import Reload
from plancha_schedulers.fair_queue import fair_queue

MakeRig = Callable[..., Any]
some = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def fair(site: Site) -> Scheduler:
    return fair_queue({}, site)


def share(served: Callable[[str], float], tenant: str, *others: str) -> float:
    return served(tenant) / sum(served(each) for each in (tenant, *others))


def test_beside_a_flood_another_tenant_starts_at_the_next_freed_slot(rig: MakeRig) -> None:
    worker = rig(fair)
    for _ in range(1000):
        worker.post("a", 10, 50)
    for _ in range(75):  # a second and a half: everybody's second request of eight is half done
        worker.step()
    light = worker.post("b", 10, 50)
    while not (plan := worker.step()).left.size:
        assert light not in worker.joined
    assert worker.joined[light] == plan.number


def test_two_backlogged_tenants_share_evenly_whoever_flooded_first(rig: MakeRig) -> None:
    worker = rig(fair)
    for _ in range(1000):
        worker.post("a", 10, 50)
    for _ in range(50):
        worker.step()
    worker.output_tokens.clear()
    for _ in range(1500):
        while worker.alive("b") < 12:
            worker.post("b", 10, 50)
        worker.step()
    assert share(worker.output_tokens.__getitem__, "b", "a") == pytest.approx(0.5, abs=0.05)


def test_one_request_at_a_time_gets_its_half_of_two_slots(rig: MakeRig) -> None:
    worker = rig(fair, max_sequences=2)
    for _ in range(1000):
        worker.post("a", 10, 50)
    for _ in range(50):
        worker.step()
    worker.output_tokens.clear()
    for _ in range(3000):
        if not worker.alive("b"):
            worker.post("b", 10, 50)
        worker.step()
    assert share(worker.output_tokens.__getitem__, "b", "a") == pytest.approx(0.5, abs=0.05)


def test_alone_a_tenant_has_the_whole_machine(rig: MakeRig) -> None:
    worker = rig(fair)
    for _ in range(80):
        worker.post("a", 10, 50)
    worker.simulation.run()
    assert len(worker.simulation.plans) == 80 // 8 * 50  # no step with an empty slot


def test_long_and_short_requests_even_out_by_their_tokens(rig: MakeRig) -> None:
    worker = rig(fair)
    for _ in range(2500):
        while worker.alive("a") < 10:
            worker.post("a", 200, 40)
        while worker.alive("b") < 60:
            worker.post("b", 20, 20)
        worker.step()
    assert share(worker.served, "a", "b") == pytest.approx(0.5, abs=0.05)
    requests = {tenant: worker.prompt_tokens[tenant] for tenant in "ab"}
    assert requests["b"] / 20 > 4 * requests["a"] / 200  # 280 virtual tokens against 60


def test_four_outputs_cost_four_times_the_output_of_one(rig: MakeRig) -> None:
    worker = rig(fair)
    for _ in range(2000):
        while worker.alive("a") < 40:
            worker.post("a", 20, 20, n=4)
        while worker.alive("b") < 20:
            worker.post("b", 20, 20)
        worker.step()
    # Per request: a prompt of 20, which three of the four share at a tenth but for its last token.
    price_a = 20 + 3 * (1 + 0.1 * 19) + 4 * 2 * 20
    price_b = 20 + 2 * 20
    finished = {tenant: worker.finished(tenant) for tenant in "ab"}
    assert finished["b"] / (finished["a"] / 4) == pytest.approx(price_a / price_b, rel=0.1)


def test_cancelled_work_stays_charged(rig: MakeRig) -> None:
    worker = rig(fair)
    for _ in range(2000):
        for tenant in "ab":
            while worker.alive(tenant) < 12:
                worker.post(tenant, 20, 20)
        worker.step()
        simulation = worker.simulation
        for sequence in list(simulation.planner.sequences.values()):
            if sequence.tenant == "a" and len(simulation.outputs[sequence.stream]) == 19:
                simulation.cancel(sequence.stream)
    assert share(worker.served, "a", "b") == pytest.approx(0.5, abs=0.05)


def test_cached_prompts_cost_a_tenth(rig: MakeRig) -> None:
    worker = rig(fair)
    for _ in range(2000):
        while worker.alive("a") < 12:
            worker.post("a", 161, 10, same=True)
        while worker.alive("b") < 12:
            worker.post("b", 161, 10)
        worker.step()
    price_a, price_b = 1 + 0.1 * 160 + 2 * 10, 161 + 2 * 10  # ten whole blocks of the prompt
    finished = {tenant: worker.finished(tenant) for tenant in "ab"}
    assert finished["a"] / finished["b"] == pytest.approx(price_b / price_a, rel=0.1)


@some
@given(
    slots=st.integers(2, 6),
    flood=st.lists(st.tuples(st.integers(1, 40), st.integers(10, 40)), min_size=1, max_size=9),
    light=st.lists(
        st.tuples(st.integers(20, 60), st.integers(1, 10), st.integers(1, 10)),
        min_size=1,
        max_size=5,
    ),
)
def test_a_light_tenant_waits_for_one_slot_at_most(
    rig: MakeRig,
    slots: int,
    flood: list[tuple[int, int]],
    light: list[tuple[int, int, int]],
) -> None:
    """From its request on: the first step that a slot comes free in, and two steps.

    It is light since between two requests the other is served at least one output token a step, 40
    virtual tokens, of which its own request costs no more than 10 + 2 * 10.
    """
    worker = rig(fair, max_sequences=slots)

    def step() -> Any:
        while worker.alive("flood") < 3 * slots:
            worker.post("flood", *flood[len(worker.tenants) % len(flood)])
        return worker.step()

    for pause, prompt, output in light:
        for _ in range(pause):
            step()
        stream, freed = worker.post("light", prompt, output), None
        while stream not in worker.joined:
            plan = step()
            freed = plan.number if freed is None and plan.left.size else freed
            assert freed is None or plan.number <= freed + 2
        while stream not in worker.simulation.finished:
            step()


@some
@given(
    slots=st.integers(1, 6),
    blocks=st.sampled_from([12, 256]),
    f=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=5),
    g=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=5),
)
def test_the_papers_bound_on_the_difference_of_service_holds(
    rig: MakeRig,
    slots: int,
    blocks: int,
    f: list[tuple[int, int]],
    g: list[tuple[int, int]],
) -> None:
    """|W_f - W_g| <= 2 max(w_p L_input, w_q M) over any time in which both f and g have a backlog.

    Sheng et al. 2024, Theorem 4.4. W is what a tenant is served, w_p a prompt token and w_q an
    output token; L_input is the longest prompt, M how many tokens a running batch can hold. The
    counter that is least is served next. Since it then was no greater than the other one, it can
    get ahead only by one prompt and by what the batch that runs now can still generate: the
    counters of f and g are never more than U = max(w_p L_input, w_q M) apart. Backlogged tenants
    are never lifted, so each one's counter grows by just what it is served; and over any time the
    difference of two numbers within U of zero changes by 2 U at most.
    """
    worker = rig(fair, max_sequences=slots, blocks=blocks)
    longest = 40
    held = min(blocks * 16, slots * (longest + 40))
    bound = 2 * max(1.0 * longest, 2.0 * held)
    differences = []
    for _ in range(300):
        for tenant, lengths in (("f", f), ("g", g)):
            while worker.alive(tenant) < 2 * slots + 1:
                worker.post(tenant, *lengths[len(worker.tenants) % len(lengths)])
        worker.step()
        differences.append(worker.served("f") - worker.served("g"))
    assert max(differences) - min(differences) <= bound


@settings(some, max_examples=8)
@given(
    weights=st.lists(st.integers(1, 5), min_size=2, max_size=3),
    lengths=st.lists(st.tuples(st.integers(1, 8), st.integers(1, 8)), min_size=3, max_size=3),
)
def test_backlogged_tenants_are_served_by_their_weights(
    rig: MakeRig, weights: list[int], lengths: list[tuple[int, int]]
) -> None:
    """Within 5 % of its share, for each, whatever their requests look like."""
    names = "abc"[: len(weights)]
    tenants = {name: Tenant(weight=weight) for name, weight in zip(names, weights, strict=True)}
    worker = rig(fair, max_sequences=4, tenants=tenants)
    shape = dict(zip("abc", lengths, strict=True))
    for _ in range(1000):
        for name in names:
            while worker.alive(name) < 6:
                worker.post(name, *shape[name])
        worker.step()
    for name, weight in zip(names, weights, strict=True):
        others = [each for each in names if each != name]
        expected = weight / sum(weights)
        assert share(worker.served, name, *others) == pytest.approx(expected, rel=0.05)


def test_a_weight_that_changes_counts_from_the_next_step_on(rig: MakeRig) -> None:
    tenants = {"a": Tenant(weight=1), "b": Tenant(weight=1)}
    worker = rig(fair, tenants=tenants)
    site = worker.simulation.planner._site

    def shares(steps: int) -> float:
        worker.output_tokens.clear()
        for _ in range(steps):
            for tenant in ("a", "b"):
                while worker.alive(tenant) < 12:
                    worker.post(tenant, 10, 50)
            worker.step()
        return share(worker.output_tokens.__getitem__, "b", "a")

    shares(50)
    assert shares(1000) == pytest.approx(0.5, abs=0.05)
    site.reload(Reload({**tenants, "b": Tenant(weight=3)}, site.max_waiting, 0.0, {}))
    shares(50)
    assert shares(1000) == pytest.approx(0.75, abs=0.05)
