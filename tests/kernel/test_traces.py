"""Why a sequence waits, in the planner's words: each reason caused, times by arithmetic.

A step of these simulations takes 0.02 s, and one that is planned at `t` has its tokens at `t` more.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import attrs
import orjson
import pytest

from plancha.contracts import Scheduler, Site, Tenant
from plancha.messages import Ask
from plancha.sequence import Sequence
from plancha.testing.simulation import Simulation
from plancha.traces import traces
from plancha.traces.trace import MOST_ENTRIES, REASONS
from plancha.traces.traces import MOST_SEQUENCES
from plancha.traces.views import Tracing
from plancha_schedulers.fair_queue import fair_queue
from plancha_schedulers.fcfs import fcfs
from plancha_schedulers.priority_preempt import priority_preempt

Entry = dict[str, Any]


def x(tokens: int) -> list[int]:
    return [120] * tokens


async def told(
    simulation: Simulation, stream: int, tenant: str = "default", *, operator: bool = True
) -> Any:
    """What is answered about the request whose first stream this is; None: nothing."""
    tracing = Tracing(simulation.planner, simulation.clock)
    ask = Ask(0, f"req-{stream}", tenant, "trace", any_tenant=operator)
    content = (await tracing.answer(ask)).content
    return None if content is None else orjson.loads(content)


async def only(simulation: Simulation, stream: int, **asked: Any) -> Any:
    """The request's one sequence."""
    (sequence,) = (await told(simulation, stream, **asked))["sequences"]
    return sequence


async def history(simulation: Simulation, stream: int, **asked: Any) -> list[Entry]:
    entries: list[Entry] = (await only(simulation, stream, **asked))["history"]
    return entries


def waiting(reason: str, from_s: float, to_s: float, steps: int, **more: int) -> Entry:
    return {
        "event": "waiting",
        "reason": reason,
        "from_s": from_s,
        "to_s": to_s,
        "steps": steps,
        **more,
    }


def at(event: str, at_s: float, **details: Any) -> Entry:
    return {"event": event, "at_s": at_s, **details}


async def test_who_joins_at_once_waits_for_nothing(rig: Any) -> None:
    simulation = rig.chain()
    stream = simulation.submit(x(5), 3)
    simulation.run()

    request = await told(simulation, stream)
    assert {key: request[key] for key in ("id", "object", "tenant", "tier")} == {
        "id": "req-0",
        "object": "request.trace",
        "tenant": "default",
        "tier": 0,
    }
    assert request["sequences"] == [
        {
            "prompt": 0,
            "choice": 0,
            "state": "ended",
            "prompt_tokens": 5,
            "output_tokens": 3,
            "history": [
                at("accepted", 0.0),
                at("joined", 0.0, cached_tokens=0),
                at("first_token", 0.02),
                at("ended", 0.06, outcome="length"),
            ],
        }
    ]


async def test_slots_the_batch_is_full(rig: Any) -> None:
    simulation = attrs.evolve(rig, max_sequences=1).chain()
    simulation.submit(x(5), 10)
    second = simulation.submit(x(5), 1)
    third = simulation.submit(x(5), 1)
    for _ in range(3):
        simulation.step()
    now = await only(simulation, second)
    assert (now["state"], now["reason"], now["position"]) == ("waiting", "slots", 1)
    later = await only(simulation, third)
    assert (later["reason"], later["position"]) == ("order", 2)
    simulation.run()

    # The first has its 10 tokens in 10 steps, and nobody is looked at in the one it joins in.
    assert await history(simulation, second) == [
        at("accepted", 0.0),
        waiting("order", 0.0, 0.02, 0),
        waiting("slots", 0.02, 0.2, 9),
        at("joined", 0.2, cached_tokens=0),
        at("first_token", 0.22),
        at("ended", 0.22, outcome="length"),
    ]


async def test_budget_prompts_before_it_use_up_the_step(rig: Any) -> None:
    simulation = rig.chain()
    simulation.submit(x(200), 1)
    second = simulation.submit([65] * 5, 1)
    simulation.run()

    # 200, 136 and 72 tokens are to be computed in steps of 64, and then 8.
    assert (await history(simulation, second))[1:3] == [
        waiting("budget", 0.0, 0.06, 3),
        at("joined", 0.06, cached_tokens=0),
    ]


async def test_blocks_are_short_and_a_small_one_overtakes(rig: Any) -> None:
    sized = attrs.evolve(rig, blocks=16, max_batched_tokens=256, max_sequences=4)
    simulation = sized.chain()
    simulation.submit(x(144), 100)
    simulation.step()
    large = simulation.submit([65] * 180, 5)
    simulation.step()
    simulation.submit([121], 1)
    simulation.step()

    # 145 tokens are in 10 of 16 blocks and the small one has another; 180 need 12.
    short = {"needs_blocks": 12, "available_blocks": 5}
    assert (await history(simulation, large))[1:] == [
        waiting("blocks", 0.0, 0.04, 2, **short, overtaken=1)
    ]
    assert (await history(simulation, large, operator=False))[1:] == [
        waiting("blocks", 0.0, 0.04, 2, needs_blocks=12)
    ]


async def test_watermark_some_blocks_are_kept_for_those_who_run(rig: Any) -> None:
    sized = attrs.evolve(rig, blocks=200, context_length=3200, max_batched_tokens=4096)
    simulation = sized.chain()
    simulation.submit(x(1600), 40)
    simulation.step()
    stream = simulation.submit([65] * 98 * 16, 1)
    simulation.step()

    # 1,601 tokens are in 101 of 200 blocks; 98 of the other 99 would do, but 2 are kept.
    assert (await history(simulation, stream))[1:] == [
        waiting("watermark", 0.0, 0.02, 1, needs_blocks=98, available_blocks=99)
    ]


async def test_tenant_limit_its_tenant_runs_as_many_as_it_may(rig: Any) -> None:
    simulation = rig.chain(tenants={"a": Tenant(max_running=1)})
    first, second, third = (simulation.submit(x(5), 5, tenant="a") for _ in range(3))
    simulation.step()
    simulation.step()
    assert [(await only(simulation, each)).get("reason") for each in (first, second, third)] == [
        None,
        "tenant_limit",
        "tenant_limit",
    ]
    simulation.run()
    (limited,) = [
        entry for entry in await history(simulation, second) if entry["event"] == "waiting"
    ]
    assert (limited["reason"], limited["to_s"]) == ("tenant_limit", 0.1)


async def test_share_it_is_another_tenants_turn(rig: Any) -> None:
    sized = attrs.evolve(rig, max_sequences=1, scheduler=partial(fair_queue, {}))
    simulation = sized.chain(tenants={"a": Tenant(), "b": Tenant()})
    simulation.submit(x(5), 5, tenant="a")
    simulation.step()
    again = simulation.submit(x(5), 5, tenant="a")
    other = simulation.submit(x(5), 5, tenant="b")
    simulation.step()

    # What is served counts, and b was served nothing yet.
    assert (await only(simulation, other))["reason"] == "slots"
    mine = await told(simulation, again, "a", operator=False)
    (sequence,) = mine["sequences"]
    assert (sequence["reason"], sequence["position"]) == ("share", 1)
    assert "position_of_all" not in sequence
    assert (await only(simulation, again))["position_of_all"] == 1
    assert (await only(simulation, other))["position_of_all"] == 2


async def test_tier_a_better_one_goes_first(rig: Any) -> None:
    sized = attrs.evolve(rig, max_sequences=1, scheduler=partial(priority_preempt, {}))
    simulation = sized.chain(tenants={"slow": Tenant(tier=1), "gold": Tenant(tier=0)})
    simulation.submit(x(5), 5, tenant="gold")
    simulation.step()
    slow = simulation.submit(x(5), 5, tenant="slow")
    gold = simulation.submit(x(5), 5, tenant="gold")
    simulation.step()
    assert (await only(simulation, slow, tenant="slow", operator=False))["reason"] == "tier"
    assert (await only(simulation, gold, tenant="gold", operator=False))["reason"] == "slots"


async def test_preempted_by_a_better_tier(rig: Any) -> None:
    sized = attrs.evolve(rig, max_sequences=2, scheduler=partial(priority_preempt, {}))
    simulation = sized.chain(tenants={"slow": Tenant(tier=1), "gold": Tenant(tier=0)})
    simulation.submit(x(5), 10, tenant="slow")
    victim = simulation.submit([65] * 5, 10, tenant="slow")
    simulation.step()
    simulation.submit(x(5), 3, tenant="gold")
    simulation.run()

    # The better one's 3 tokens take 3 steps, and then there is a slot again.
    assert (await history(simulation, victim, tenant="slow", operator=False))[1:6] == [
        at("joined", 0.0, cached_tokens=0),
        at("first_token", 0.02),
        at("preempted", 0.02, reason="tier", kept=False),
        waiting("slots", 0.02, 0.08, 3),
        at("resumed", 0.08, computed_tokens=0),
    ]


class Plain:
    """A scheduler that explains nothing."""

    def __init__(self, site: Site) -> None:
        inner = fcfs({}, site)
        self.add, self.waiting, self.joined = inner.add, inner.waiting, inner.joined
        self.victims, self.charge, self.remove = inner.victims, inner.charge, inner.remove


async def test_order_a_scheduler_that_explains_nothing(rig: Any) -> None:
    simulation = attrs.evolve(rig, max_sequences=1, scheduler=Plain).chain()
    simulation.submit(x(5), 5)
    simulation.submit(x(5), 5)
    last = simulation.submit(x(5), 5)
    simulation.step()
    assert (await only(simulation, last))["reason"] == "order"


class Telling(Plain):
    """A scheduler with a word of its own."""

    def why(self, sequence: Sequence) -> str:
        return "acme goes first"


class Failing(Plain):
    """A scheduler whose explanation is broken."""

    def why(self, sequence: Sequence) -> str:
        raise ZeroDivisionError


@pytest.mark.parametrize(("scheduler", "whole"), [(Telling, "acme goes first"), (Failing, "order")])
async def test_a_plugins_own_word_is_for_operators_and_its_failure_is_no_harm(
    rig: Any, scheduler: type[Plain], whole: str
) -> None:
    simulation = attrs.evolve(rig, max_sequences=1, scheduler=scheduler).chain()
    simulation.submit(x(5), 5)
    simulation.submit(x(5), 5)
    last = simulation.submit(x(5), 5)
    simulation.step()
    assert (await only(simulation, last))["reason"] == whole
    assert (await only(simulation, last, operator=False))["reason"] == "order"


async def test_sibling_the_first_output_of_its_prompt_is_computed_first(rig: Any) -> None:
    simulation = rig.chain()
    stream = simulation.submit(x(100), 1, n=2)
    simulation.step()
    first, second = (await told(simulation, stream))["sequences"]
    assert (first["choice"], first["state"], first["computed_tokens"]) == (0, "running", 64)
    assert (second["choice"], second["state"], second["reason"]) == (1, "waiting", "sibling")
    simulation.run()

    # 100 tokens take two steps of 64.
    _, second = (await told(simulation, stream))["sequences"]
    assert [entry["event"] for entry in second["history"]] == [
        *("accepted", "waiting", "joined", "first_token", "ended"),
    ]
    assert second["history"][1] == waiting("sibling", 0.0, 0.04, 0)


async def test_paused_its_reader_lags(rig: Any) -> None:
    simulation = rig.chain()
    stream = simulation.submit(x(5), 10)
    simulation.step()
    simulation.pause(stream)
    assert not simulation.step()
    assert (await only(simulation, stream))["reason"] == "paused"
    simulation.clock.advance(1.0)
    simulation.resume(stream)
    simulation.run()

    assert (await history(simulation, stream))[3:5] == [
        waiting("paused", 0.02, 1.02, 0),
        at("resumed", 1.02, computed_tokens=5),
    ]


async def test_preempted_for_blocks_and_what_became_of_its_memory(rig: Any) -> None:
    sized = attrs.evolve(rig, blocks=4, context_length=64)
    simulation = sized.chain()
    simulation.submit(x(30), 10)
    stream = simulation.submit([65] * 30, 10)
    simulation.run()

    # After three steps both have 33 tokens and want a third block; the first has 10 after ten.
    # Until then it holds 3 of 4 blocks; the fourth has the other's first 16 tokens, which needs 3.
    assert (await history(simulation, stream))[1:6] == [
        at("joined", 0.0, cached_tokens=0),
        at("first_token", 0.02),
        at("preempted", 0.06, reason="blocks", kept=False),
        waiting("blocks", 0.06, 0.2, 7, needs_blocks=2, available_blocks=0),
        at("resumed", 0.2, computed_tokens=16),
    ]


async def test_engine_a_step_failed_in_which_it_was_not(rig: Any) -> None:
    simulation = rig.chain()
    stream = simulation.submit(x(5), 10)
    plan = simulation.start()
    simulation.planner._in_flight = attrs.evolve(plan, slots=plan.slots[:0])
    simulation.planner.fail(simulation.clock())
    assert (await only(simulation, stream))["reason"] == "engine"


async def test_the_middle_of_a_long_history_is_summed_up(rig: Any) -> None:
    simulation = attrs.evolve(rig, context_length=1024).chain()
    stream = simulation.submit(x(5), 200)
    pauses = MOST_ENTRIES
    for _ in range(pauses):
        simulation.step()
        simulation.pause(stream)
        simulation.step()
        simulation.clock.advance(1.0)
        simulation.resume(stream)
    simulation.run()

    entries = await history(simulation, stream)
    (omitted,) = [entry for entry in entries if entry["event"] == "omitted"]
    # Joined, ended, and twice as many as there were pauses: waiting and resumed.
    assert omitted["entries"] == 2 + 2 * pauses - MOST_ENTRIES
    assert len(entries) == MOST_ENTRIES + 3  # accepted, first_token and this one
    assert entries[-1]["event"] == "ended"
    times: list[float] = [entry["at_s" if "at_s" in entry else "from_s"] for entry in entries]
    assert times == sorted(times)


async def test_the_latest_that_ended_are_remembered(
    rig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "MOST_ENDED", 2)
    simulation = rig.chain()
    running = simulation.submit(x(5), 50)
    ended = []
    for _ in range(4):
        ended.append(simulation.submit(x(5), 1))
        simulation.step()
    assert [await told(simulation, each) is not None for each in (running, *ended)] == [
        *(True, False, False, True, True),
    ]


async def test_of_a_request_with_many_sequences_so_many_are_told_and_no_more_is_kept(
    rig: Any,
) -> None:
    """A thousand took a second of the worker's time, each time somebody asked."""
    simulation = attrs.evolve(rig, max_sequences=1, max_waiting=1024).chain()
    stream = simulation.submit(x(5), 1, more_prompts=[x(5)] * 999)
    simulation.step()
    for _ in range(2):
        trace = await told(simulation, stream)
        assert trace["sequence_count"] == 1000
        assert [each["prompt"] for each in trace["sequences"]] == list(range(MOST_SEQUENCES))
        for number in range(1000):
            simulation.cancel(stream + number)
    found = simulation.planner.traces.find(trace["id"])
    assert found is not None and found.running == 0
    assert len(found.sequences) == MOST_SEQUENCES


async def test_a_request_whose_first_sequence_failed_is_remembered_while_another_runs(
    rig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended before the next was there, so for a moment none of them ran."""
    monkeypatch.setattr(traces, "MOST_ENDED", 1)
    simulation = rig.chain()
    scheduler = simulation.planner._scheduler
    add, added = scheduler.add, []

    def fail_once(sequence: Sequence, now: float) -> None:
        added.append(sequence)
        if len(added) == 1:
            raise RuntimeError
        add(sequence, now)

    monkeypatch.setattr(scheduler, "add", fail_once)
    stream = simulation.submit(x(5), 20, more_prompts=[x(5)])
    for _ in range(2):
        simulation.submit(x(5), 1)
        simulation.step()
    states = [each["state"] for each in (await told(simulation, stream))["sequences"]]
    assert states == ["ended", "running"]
    simulation.run()
    assert simulation.finished[stream + 1].reason == "length"


async def test_who_waited_too_long_ended_so(rig: Any) -> None:
    simulation = attrs.evolve(rig, max_sequences=1).chain(queue_timeout_s=1.0)
    simulation.submit(x(5), 100)
    late = simulation.submit(x(5), 1)
    simulation.step()
    simulation.clock.advance(1.0)
    simulation.step()
    assert (await history(simulation, late))[-1] == at(
        "ended", 1.02, outcome="error", code="queue_timeout"
    )


async def test_to_another_tenant_there_is_no_such_request(rig: Any) -> None:
    simulation = rig.chain(tenants={"a": Tenant(), "b": Tenant()})
    stream = simulation.submit(x(5), 5, tenant="a")
    simulation.step()
    assert await told(simulation, stream, "a", operator=False) is not None
    assert await told(simulation, stream, "b", operator=False) is None
    assert await told(simulation, 99, "b", operator=False) is None
    assert await told(simulation, stream, "b", operator=True) is not None


@pytest.mark.parametrize("make", [fcfs, fair_queue, priority_preempt])
async def test_what_a_tenant_is_told_is_the_same_whoever_the_others_are(
    rig: Any, make: Callable[[Mapping[str, Any], Site], Scheduler]
) -> None:
    """How many they are, what they are called and how much they hold is not to be seen."""
    answers = []
    for name, others in (("b", 3), ("a-very-long-name", 7)):
        tenants = {"a": Tenant(tier=1), name: Tenant(tier=0)}
        sized = attrs.evolve(rig, max_sequences=2, scheduler=partial(make, {}))
        simulation = sized.chain(tenants=tenants)
        for _ in range(others):
            simulation.submit(x(5), 20, tenant=name)
        mine = simulation.submit(x(5), 5, tenant="a")
        for _ in range(3):
            simulation.step()
        answers.append(await told(simulation, mine, "a", operator=False))
    assert answers[0] | {"id": ""} == answers[1] | {"id": ""}
    assert not {"tenant", "tier"} & answers[0].keys()
    reasons = {entry.get("reason") for entry in answers[0]["sequences"][0]["history"]}
    assert reasons <= {None, *REASONS}
