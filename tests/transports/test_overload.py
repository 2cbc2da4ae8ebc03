"""More than there is room for, over HTTP: statuses, Retry-After, and nobody left without an end."""

import hashlib
from collections import Counter
from typing import Any

import attrs
from anyio import create_task_group

from plancha.access import Access
from plancha.contracts import Tenant
from plancha.testing.embedded import Limits, embedded
from plancha.testing.gate import GatedExecutor
from plancha_schedulers.fair_queue import fair_queue
from plancha_text.byte_text import byte_text

KEYS = {"a": "sk-test-a", "b": "sk-test-b"}
ACCESS = Access(
    keys={"sha256:" + hashlib.sha256(key.encode()).hexdigest(): who for who, key in KEYS.items()},
    anonymous=None,
)
BODY = {"prompt": "x" * 33, "max_tokens": 20}


@attrs.define(eq=False)
class Answers:
    """What came back, by tenant."""

    seen: list[tuple[str, int, str | None, str | None]] = attrs.field(factory=list)

    async def post(
        self, server: Any, tenant: str, body: Any, path: str = "/v1/completions"
    ) -> None:
        headers = {"Authorization": f"Bearer {KEYS[tenant]}"}
        async with server.session.post(server.url + path, json=body, headers=headers) as response:
            error = (await response.json()).get("error", {}) if response.status != 200 else {}
            await response.read()
            retry_after = response.headers.get("Retry-After")
            self.seen.append((tenant, response.status, error.get("code"), retry_after))

    def counted(self) -> Counter[tuple[str, int, str | None]]:
        return Counter(each[:3] for each in self.seen)


async def test_a_crowd_is_refused_before_any_work_and_late_ones_are_told_so(
    listen: Any, emits: Any, until: Any
) -> None:
    limits = Limits(
        tenants={name: Tenant(max_waiting=16) for name in KEYS}, queue_timeout_s=2.0, max_waiting=64
    )
    now, gate, answers = [0.0], GatedExecutor(emits(65)), Answers()
    async with (
        embedded(
            gate,
            byte_text(),
            limits=limits,
            scheduler=lambda site: fair_queue({}, site),
            clock=lambda: now[0],
        ) as kernel,
        listen(kernel.gateway, kernel) as server,
        create_task_group() as clients,
    ):
        kernel.gateway.access = ACCESS
        planner = kernel.planner
        assert planner is not None
        for _ in range(100):
            clients.start_soon(answers.post, server, "a", BODY)
        await until(lambda: len(answers.seen) == 76)
        assert answers.counted() == {("a", 429, "tenant_queue_full"): 76}
        assert all(int(retry_after or 0) >= 1 for *_, retry_after in answers.seen)
        await gate.started()
        clients.start_soon(answers.post, server, "b", BODY)
        await until(lambda: planner.overload.backlog._accepted["b"] == 1)
        while planner.batch.free_slots:
            gate.commit()
            await gate.started()
        now[0] = 2.0
        gate.commit()
        await until(lambda: len(answers.seen) == 76 + 17)
        gate.open()
    assert answers.counted() == {
        ("a", 429, "tenant_queue_full"): 76,
        ("a", 503, "queue_timeout"): 17,
        ("a", 200, None): 7,
        ("b", 200, None): 1,
    }
    assert all(int(each[3] or 0) >= 1 for each in answers.seen if each[1] != 200)


async def test_a_used_up_quota_is_429_with_the_time_until_it_is_not(
    listen: Any, emits: Any
) -> None:
    limits = Limits(tenants={"default": Tenant(tokens_per_minute=60)})
    now, body = [0.0], {"prompt": "x" * 100, "max_tokens": 1}
    async with (
        embedded(emits(65), byte_text(), limits=limits, clock=lambda: now[0]) as kernel,
        listen(kernel.gateway, kernel) as server,
    ):
        assert (await server.post("/v1/completions", body))[0] == 200
        async with server.session.post(server.url + "/v1/completions", json=body) as response:
            assert response.status == 429
            assert (
                response.headers["Retry-After"] == "42"
            )  # 101 - 60 are owed, one flows in a second
            error = (await response.json())["error"]
            assert (error["type"], error["code"]) == ("rate_limit_error", "tokens_per_minute")
        now[0] = 42.0
        assert (await server.post("/v1/completions", body))[0] == 200


async def test_a_full_queue_of_all_tenants_is_429(serve: Any, emits: Any, until: Any) -> None:
    gate = GatedExecutor(emits(65))
    async with (
        serve(gate, limits=Limits(max_sequences=1, max_waiting=2)) as server,
        create_task_group() as clients,
    ):
        full = {"prompt": ["a", "b", "c"], "max_tokens": 2}
        clients.start_soon(server.post, "/v1/completions", full)
        await gate.started()
        async with server.session.post(server.url + "/v1/completions", json=full) as response:
            assert response.status == 429
            assert int(response.headers["Retry-After"]) >= 1
            assert (await response.json())["error"]["code"] == "queue_full"
        gate.open()


async def test_more_outputs_than_could_ever_wait_are_a_mistake(serve: Any, emits: Any) -> None:
    async with serve(emits(65), limits=Limits(max_sequences=1, max_waiting=2)) as server:
        status, error = await server.refusal("/v1/completions", {"prompt": "a", "n": 4})
        assert (status, error["code"]) == (400, "too_many_sequences")


async def test_a_client_that_leaves_the_queue_gives_its_place_to_another(
    serve: Any, emits: Any, until: Any
) -> None:
    gate, one = GatedExecutor(emits(65)), {"prompt": "a", "max_tokens": 2}
    async with (
        serve(gate, limits=Limits(max_sequences=1, max_waiting=1)) as server,
        create_task_group() as clients,
    ):
        accepted = server.kernel.planner.overload.backlog._accepted
        clients.start_soon(server.post, "/v1/completions", one)
        await gate.started()
        async with create_task_group() as leaving:
            leaving.start_soon(server.post, "/v1/completions", one)
            await until(lambda: accepted["default"] == 2)
            assert (await server.post("/v1/completions", one))[0] == 429
            leaving.cancel_scope.cancel()
        await until(lambda: accepted["default"] == 1)
        clients.start_soon(server.post, "/v1/completions", one)
        await until(lambda: accepted["default"] == 2)
        gate.open()
