"""What is told of a worker at a moment: by arithmetic to operators, and to a tenant its own."""

from typing import Any

import attrs
import orjson
import pytest

from plancha.live.block_map import MOST_CELLS, own_map, runs, stride_of
from plancha.live.live import Live
from plancha.messages import Ask
from plancha.testing.simulation import Simulation

STEP_S = 0.02
FREE, CACHED, OTHER = 0, 1, 2


@attrs.define
class Watcher:
    """Looks after so long that it is told of this very moment."""

    simulation: Simulation
    live: Live

    async def look(self, tenant: str | None = None) -> Any:
        self.simulation.clock.advance(5.0)
        return await self.look_again(tenant)

    async def look_again(self, tenant: str | None = None) -> Any:
        ask = Ask(7, "", tenant or "", "live", any_tenant=tenant is None)
        answer = await self.live.answer(ask)
        assert answer.number == 7
        return orjson.loads(answer.content or b"")


def watch(simulation: Simulation) -> Watcher:
    planner = simulation.planner
    return Watcher(simulation, Live(planner=planner, site=planner._site, clock=simulation.clock))


def cells(told: Any) -> list[int]:
    pairs = told["kv"]["map"]
    return [code for code, times in zip(pairs[::2], pairs[1::2], strict=True) for _ in range(times)]


async def test_the_map_tells_whose_every_block_is(rig: Any) -> None:
    simulation = rig.script(65)
    watcher = watch(simulation)
    simulation.submit([65] * 40, 8, tenant="beta")
    simulation.submit([66] * 20, 8, tenant="acme")
    simulation.step()
    told = await watcher.look()
    beta, acme = simulation.planner.sequences.values()
    found = cells(told)
    assert [each["name"] for each in told["tenants"]] == ["acme", "beta"]
    assert [index for index, code in enumerate(found) if code == 3] == sorted(acme.blocks)
    assert [index for index, code in enumerate(found) if code == 5] == sorted(beta.blocks)
    assert found.count(FREE) == 64 - 2 - 3  # blocks of 16 for 21 and 41 tokens
    assert told["kv"] == {
        "block_size": 16,
        "total_blocks": 64,
        "used_share": round(5 / 64, 4),
        "used_blocks": 5,
        "cached_blocks": 0,
        "free_blocks": 59,
        "waste": (80 - 62) / 80,
        "host_blocks": 0,
        "host_free_blocks": 0,
        "map_stride": 1,
        "map": told["kv"]["map"],
    }
    assert [each["blocks"] for each in told["tenants"]] == [2, 3]


async def test_blocks_that_several_hold_are_marked_as_such(rig: Any) -> None:
    simulation = rig.chain()
    watcher = watch(simulation)
    simulation.submit(list(range(40, 80)), 8, n=2, tenant="acme")
    simulation.step()
    simulation.step()
    told = await watcher.look()
    assert cells(told).count(4) == 2  # two whole blocks of the prompt's 40 tokens
    assert cells(told).count(3) == 2  # the third, and its copy
    (acme,) = told["tenants"]
    assert (acme["blocks"], acme["shared_blocks"]) == (4, 2)


async def test_what_is_cached_is_nobodys_and_what_tenants_share_is_no_ones_alone(rig: Any) -> None:
    simulation = rig.chain()
    watcher = watch(simulation)
    prompt = list(range(40, 80))
    simulation.submit(prompt, 2, tenant="acme", public_tokens=(32,))
    simulation.run()
    told = await watcher.look()
    assert cells(told).count(CACHED) == 2 == told["kv"]["cached_blocks"]
    for tenant in ("acme", "beta"):
        simulation.submit(prompt, 8, tenant=tenant, public_tokens=(32,))
    simulation.step()
    told = await watcher.look()
    assert cells(told).count(OTHER) == 2
    assert [each["blocks"] for each in told["tenants"]] == [3, 3]
    own = await watcher.look("acme")
    assert cells(own)[:4] == [3, 3, 3, OTHER]  # that they are shared is the other's


async def test_sequences_are_told_with_how_far_they_are(rig: Any) -> None:
    simulation = rig.script(65)
    watcher = watch(simulation)
    simulation.submit([65] * 100, 8, tenant="acme")
    simulation.step()  # at most 64 tokens in a step
    told = await watcher.look()
    assert told["batch"] == {
        "slots": 8,
        "used_share": 0.125,
        "running": 1,
        "sequences": [
            {
                "id": "req-0",
                "tenant": "acme",
                "state": "prefill",
                "prompt_tokens": 100,
                "computed_tokens": 64,
                "known_tokens": 100,
                "limit_tokens": 108,
                "blocks": 7,
                "preemptions": 0,
                "age_s": STEP_S + 5,
            }
        ],
    }
    simulation.step()
    simulation.step()
    (sequence,) = (await watcher.look())["batch"]["sequences"]
    assert sequence["state"] == "decode"
    assert (sequence["computed_tokens"], sequence["known_tokens"]) == (101, 102)


async def test_who_waits_and_who_is_paused_is_told_by_tenant(rig: Any) -> None:
    simulation = attrs.evolve(rig, max_sequences=2).script(65)
    watcher = watch(simulation)
    paused = simulation.submit([65] * 8, 8, tenant="acme")
    for tenant in ("acme", "beta", "beta", "beta"):
        simulation.submit([65] * 8, 8, tenant=tenant)
    simulation.step()
    simulation.pause(paused)
    simulation.step()
    told = await watcher.look()
    counts = {
        each["name"]: (each["running"], each["waiting"], each["paused"], each["longest_wait_s"])
        for each in told["tenants"]
    }
    assert counts == {
        "acme": (1, 0, 1, 0.0),
        "beta": (1, 2, 0, round(2 * STEP_S + 5, 6)),
    }


async def test_counters_and_quantiles_are_those_of_what_was_done(rig: Any) -> None:
    simulation = rig.script(65)
    watcher = watch(simulation)
    simulation.submit([65] * 20, 4, tenant="acme")
    simulation.clock.advance(1.0)
    simulation.run()
    told = await watcher.look()
    assert told["counters"] == {
        "steps": 4,
        "generated_tokens": 4,
        "prompt_tokens": 20,
        "cached_prompt_tokens": 0,
        "ended": {"stop": 0, "length": 1, "cancelled": 0, "error": 0},
        "rejected": 0,
        "preemptions": {"swapped": 0, "recompute": 0},
    }
    first = {"count": 1, "p50_s": 1 + STEP_S, "p99_s": 1 + STEP_S}
    inter = {"count": 3, "p50_s": STEP_S, "p99_s": STEP_S}
    assert told["recent"] == {"window_s": 30.0, "first_token": first, "inter_token": inter}
    assert told["tenants"][0]["first_token"] == first
    simulation.clock.advance(40.0)
    told = await watcher.look()
    nothing = {"count": 0, "p50_s": None, "p99_s": None}
    assert told["recent"]["first_token"] == told["recent"]["inter_token"] == nothing
    assert told["at_s"] == pytest.approx(1 + 4 * STEP_S + 5 + 40 + 5)


async def test_a_newcomers_first_token_is_no_gap_of_its_tenants(rig: Any) -> None:
    simulation = rig.script(65)
    watcher = watch(simulation)
    simulation.submit([65] * 8, 4, tenant="acme")
    simulation.step()
    simulation.submit([65] * 8, 4, tenant="beta")
    simulation.step()
    told = await watcher.look()
    assert told["recent"]["inter_token"]["count"] == 1
    counts = {each["name"]: each["inter_token"]["count"] for each in told["tenants"]}
    assert counts == {"acme": 1, "beta": 0}


async def test_a_tenant_is_told_its_own_and_no_block_is_in_its_place(rig: Any) -> None:
    simulation = rig.script(65)
    watcher = watch(simulation)
    simulation.submit([65] * 40, 8, tenant="beta")
    simulation.submit([66] * 20, 8, tenant="acme")
    simulation.step()
    told = await watcher.look("acme")
    assert told["scope"] == "tenant"
    assert told["kv"] == {
        "block_size": 16,
        "total_blocks": 64,
        "used_share": 0.1,  # 5 of 64, to a twentieth
        "map_stride": 1,
        "map": [3, 2, OTHER, 62],
    }
    assert [each["name"] for each in told["tenants"]] == ["acme"]
    assert [each["tenant"] for each in told["batch"]["sequences"]] == ["acme"]
    assert (told["batch"]["running"], told["batch"]["used_share"]) == (1, 0.25)
    assert told["counters"] == {
        "generated_tokens": 1,
        "prompt_tokens": 20,
        "ended": {"stop": 0, "length": 0, "cancelled": 0, "error": 0},
    }
    assert told["recent"]["first_token"]["count"] == 1
    assert "beta" not in orjson.dumps(told).decode()


async def test_others_change_nothing_of_what_a_tenant_is_told_but_how_full_it_is(rig: Any) -> None:
    """Two worlds that differ in what another tenant does, and are as full to a twentieth."""

    async def world(others: list[int]) -> Any:
        simulation = attrs.evolve(rig, max_sequences=128, max_batched_tokens=256).script(65)
        watcher = watch(simulation)
        for length in others[:1]:
            simulation.submit([70] * length, 9, tenant="secret")
        simulation.submit([66] * 20, 8, tenant="acme")
        for length in others[1:]:
            simulation.submit([70] * length, 7, tenant="secret")
        simulation.step()
        told = await watcher.look("acme")
        del told["batch"]["sequences"][0]["id"]  # numbered by the simulation
        return told

    alone, crowded = await world([]), await world([10, 14])
    assert (alone["kv"]["used_share"], crowded["kv"]["used_share"]) == (0.05, 0.05)
    assert alone == crowded


async def test_who_never_asked_for_anything_is_told_that_nothing_is_theirs(rig: Any) -> None:
    simulation = rig.script(65)
    watcher = watch(simulation)
    simulation.submit([65] * 8, 8, tenant="beta")
    simulation.step()
    told = await watcher.look("nobody")
    assert cells(told) == [OTHER] * 64
    assert [each["name"] for each in told["tenants"]] == ["nobody"]
    assert told["batch"]["running"] == told["counters"]["generated_tokens"] == 0


async def test_within_a_quarter_of_a_second_nobody_has_it_looked_at_again(rig: Any) -> None:
    simulation = rig.script(65)
    watcher = watch(simulation)
    simulation.submit([65] * 8, 8, tenant="acme")
    before = await watcher.look()
    simulation.step()
    assert await watcher.look_again() == before
    assert (await watcher.look_again("acme"))["at_s"] == before["at_s"]
    assert (await watcher.look())["counters"]["generated_tokens"] == 1


def test_a_large_pool_is_told_of_in_strides() -> None:
    assert stride_of(MOST_CELLS) == 1
    assert stride_of(MOST_CELLS + 1) == 2
    assert stride_of(0) == 1
    assert runs(own_map(10, 5, 2)[::2]) == [3, 2, 4, 1, 2, 2]  # of 3 3 3 4 4 2 2 2 2 2
    assert runs(own_map(0, 0, 0)) == []


async def test_an_allocator_that_does_not_say_what_is_cached_has_it_drawn_as_free(rig: Any) -> None:
    class Silent:
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> Any:
            if name == "cached_blocks":
                raise AttributeError(name)
            return getattr(self._inner, name)

    inner = rig.allocator
    simulation = attrs.evolve(rig, allocator=lambda site: Silent(inner(site))).chain()
    simulation.submit(list(range(40, 80)), 2, tenant="acme")
    simulation.run()
    told = await watch(simulation).look()
    assert told["kv"]["cached_blocks"] == 2
    assert cells(told) == [FREE] * 64


async def test_a_tenants_counters_stay_when_many_others_had_more_than_it(
    rig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plancha.live.snapshot.MOST_TENANTS", 1)
    simulation = rig.script(65)
    watcher = watch(simulation)
    simulation.submit([65] * 4, 8, tenant="large")
    simulation.submit([65] * 4, 2, tenant="small")
    simulation.run()

    told = await watcher.look("small")

    assert told["counters"]["generated_tokens"] == 2
    assert told["counters"]["prompt_tokens"] == 4
    assert told["counters"]["ended"]["length"] == 1
    assert told["tenants"][0]["first_token"]["count"] == 1
