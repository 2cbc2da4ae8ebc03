"""Tokens per minute: what is charged when, what comes back, and when to try again."""

from typing import Any

import attrs
import pytest

from plancha.contracts import Site, Tenant
from plancha.failure import Failure, RequestFailed
from plancha.overload.quota import Quotas

PROMPT = 33


def limited(rig: Any, tokens: int, **fields: Any) -> Any:
    return rig.chain(tenants={"a": Tenant(tokens_per_minute=tokens)}, **fields)


def submit(simulation: Any, prompt: int = PROMPT, output: int = 7, **fields: Any) -> int:
    stream: int = simulation.submit([120] * prompt, output, tenant="a", **fields)
    return stream


def refusal(simulation: Any, **fields: Any) -> Failure:
    with pytest.raises(RequestFailed) as refused:
        submit(simulation, **fields)
    failure = refused.value.failure
    assert (failure.kind, failure.code) == ("busy", "tokens_per_minute")
    return failure


def test_prompt_and_output_are_charged_and_a_minute_refills_it_all(rig: Any) -> None:
    simulation = limited(rig, 80)
    for _ in range(2):
        submit(simulation)
        simulation.run()
    left = 80 - 2 * (PROMPT + 7) + simulation.clock() * 80 / 60
    submit(simulation, output=1)
    owed = PROMPT - left
    assert refusal(simulation).retry_after_s == int(owed / (80 / 60)) + 1
    simulation.clock.advance(60)
    submit(simulation)


def test_after_exactly_the_time_that_was_told_a_request_is_accepted(rig: Any) -> None:
    simulation = limited(rig, 60)
    submit(simulation, prompt=100)
    assert refusal(simulation).retry_after_s == 41  # 40 are owed, one a second flows in
    simulation.clock.advance(40)
    assert refusal(simulation).retry_after_s == 1
    simulation.clock.advance(1)
    submit(simulation, prompt=1)


def submit_other(simulation: Any) -> int:
    stream: int = simulation.submit([120] * PROMPT, 7, tenant="b")
    return stream


def test_the_bucket_holds_no_more_than_a_minute(rig: Any) -> None:
    simulation = limited(rig, 50)
    simulation.clock.advance(3600)
    submit(simulation, prompt=49)
    submit(simulation, prompt=1)
    assert refusal(simulation).retry_after_s == 1


def test_output_is_paid_for_as_it_comes(rig: Any) -> None:
    simulation = limited(rig, 60)
    submit(simulation, prompt=50, output=200)
    quotas = simulation.planner.overload.quotas
    for _ in range(10):  # 10 are left after the prompt; a step takes one and lets 0.02 s flow in
        simulation.step()
    assert quotas.refusal("a", simulation.clock()) is None  # 0.2 are left
    simulation.step()
    assert refusal(simulation).retry_after_s == 1  # 0.78 are owed


def test_a_prompt_cancelled_before_any_of_it_was_computed_costs_nothing(rig: Any) -> None:
    simulation = limited(rig, PROMPT)
    for _ in range(5):
        simulation.cancel(submit(simulation))
    submit(simulation)
    assert refusal(simulation)


def test_what_was_not_computed_of_a_cancelled_prompt_comes_back(rig: Any) -> None:
    simulation = attrs.evolve(rig, max_batched_tokens=32).chain(
        tenants={"a": Tenant(tokens_per_minute=100)}
    )
    stream = submit(simulation, prompt=100)
    assert refusal(simulation).retry_after_s == 1
    simulation.step()  # 32 of the 100
    simulation.cancel(stream)
    submit(simulation, prompt=68 - 1)  # which leaves one and what flowed in
    submit(simulation, prompt=1)
    submit(simulation, prompt=1)
    assert refusal(simulation)


def test_outputs_of_one_prompt_pay_for_it_once_and_get_it_back_once(rig: Any) -> None:
    simulation = limited(rig, PROMPT)
    first = submit(simulation, n=4)
    assert refusal(simulation).retry_after_s == 1  # at zero, not below
    plan = simulation.start()
    for stream in range(first, first + 4):
        simulation.cancel(stream)
    simulation.commit(plan)  # nobody was there any more to take in what it computed
    first = submit(simulation, n=4)
    for stream in reversed(range(first, first + 4)):
        simulation.cancel(stream)
    submit(simulation, n=4)
    assert refusal(simulation)


def test_a_new_limit_holds_at_once_and_debts_stay(rig: Any) -> None:
    tenants = {"a": Tenant(tokens_per_minute=60)}
    simulation = rig.chain(tenants=tenants)
    submit(simulation, prompt=120)
    assert refusal(simulation).retry_after_s == 61
    tenants["a"] = Tenant(tokens_per_minute=600)
    assert refusal(simulation).retry_after_s == 7
    tenants["a"] = Tenant()
    submit(simulation)
    tenants["a"] = Tenant(tokens_per_minute=60)
    assert refusal(simulation).retry_after_s == 61


def test_one_tenants_limit_is_nobody_elses(rig: Any) -> None:
    simulation = limited(rig, 1)
    submit(simulation)
    assert refusal(simulation)
    for _ in range(3):
        submit_other(simulation)


def test_a_tenant_without_a_limit_has_no_books() -> None:
    site = Site(
        max_sequences=1,
        max_batched_tokens=64,
        max_waiting=1,
        block_size=16,
        model="",
        vocabulary=1,
    )
    quotas = Quotas(site)
    quotas.charge({"a": 10**9}, 0.0)
    assert quotas.refusal("a", 0.0) is None
