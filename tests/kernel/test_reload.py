"""What an operator changes while a kernel runs: in force for whoever comes after it."""

from typing import Any

import attrs
import pytest

from plancha.access import Access, key_hash
from plancha.calls.call import Call
from plancha.contracts import Geometry, Site, Tenant
from plancha.failure import RequestFailed
from plancha.messages import Reload
from plancha.testing.client import collect, quiet
from plancha.testing.embedded import Limits, embedded
from plancha.testing.executors import ScriptExecutor
from plancha.testing.gate import GatedExecutor
from plancha_text.byte_text import byte_text

GEOMETRY = Geometry(blocks=64, context_length=256, vocabulary=264, stop_ids=(257,))


def script() -> ScriptExecutor:
    return ScriptExecutor(lambda prompt: (65,), GEOMETRY)


def call(tenant: str, **fields: Any) -> Call:
    return Call(model=None, prompts=("x",), tenant=tenant, **{"max_tokens": 2, **fields})


def reload(**tenants: Tenant) -> Reload:
    return Reload(tenants, max_waiting=7, queue_timeout_s=3.0, ttft_targets_s={0: 1.5})


def access(tenant: str) -> Access:
    return Access(keys={key_hash(b"pk-new"): tenant}, anonymous=None)


async def test_whoever_comes_after_a_reload_has_the_new_tier_and_who_was_there_the_old() -> None:
    gated = GatedExecutor(script())
    async with embedded(gated, byte_text()) as kernel:
        gateway = kernel.gateway
        before = await gateway.generate(call("acme"))
        await gated.started()
        await gateway.reload(access("acme"), reload(acme=Tenant(tier=3)))
        assert gateway.access.tenant_of(b"pk-new") == "acme"
        after = await gateway.generate(call("acme"))
        gated.commit()
        await gated.started()
        assert kernel.planner is not None
        tiers = {stream: each.tier for stream, each in kernel.planner.sequences.items()}
        assert tiers == {before.streams[0].number: 0, after.streams[0].number: 3}
        gated.open()
        for generation in (before, after):
            async for _ in generation:
                pass


async def test_a_worker_goes_by_all_that_a_reload_says() -> None:
    async with embedded(script(), byte_text()) as kernel:
        await kernel.gateway.reload(Access(), reload(acme=Tenant(weight=2.0)))
        await collect(kernel.gateway, call("acme"))
        site = kernel.worker.site
        assert site.tenants == {"acme": Tenant(weight=2.0)}
        assert (site.max_waiting, site.queue_timeout_s) == (7, 3.0)
        assert site.ttft_targets_s == {0: 1.5}
        await quiet(kernel)


async def test_a_smaller_queue_is_smaller_at_once() -> None:
    gated = GatedExecutor(script())
    async with embedded(gated, byte_text(), limits=Limits(max_sequences=1)) as kernel:
        gateway = kernel.gateway
        generations = [await gateway.generate(call("a")) for _ in range(3)]
        await gated.started()
        await gateway.reload(Access(), attrs.evolve(reload(), max_waiting=2))
        with pytest.raises(RequestFailed) as refused:
            await collect(gateway, call("a"))
        assert refused.value.failure.kind == "busy"
        gated.open()
        for generation in generations:
            async for _ in generation:
                pass


def test_nothing_else_of_a_site_changes() -> None:
    site = Site(
        max_sequences=1,
        max_batched_tokens=64,
        max_waiting=1,
        block_size=16,
        model="tiny",
        vocabulary=260,
    )
    live = {"tenants", "max_waiting", "queue_timeout_s", "ttft_targets_s"}
    for field in attrs.fields(Site):
        if field.name not in live:
            with pytest.raises(attrs.exceptions.FrozenAttributeError):
                setattr(site, field.name, None)
    site.reload(reload())
    assert site.max_waiting == 7
