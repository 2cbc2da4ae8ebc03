"""The checks hold of the server, and fail of servers that let one tenant see another."""

import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import attrs
import pytest
from aiohttp import web

from plancha.access import Access, key_hash
from plancha.contracts import Geometry
from plancha.gateway import Gateway
from plancha.options import structure
from plancha.testing.embedded import Limits, embedded
from plancha.testing.executors import ChainExecutor
from plancha_app.complaints import Mistake
from plancha_app.selftest.command import run
from plancha_app.selftest.isolation import Check, Trial, isolation
from plancha_app.selftest.tenant import SelftestError, tenant
from plancha_text.byte_text import byte_text
from plancha_texts.keeper import TextKeeper
from plancha_texts.retention import Policy
from plancha_transports.http import HttpTransport
from plancha_transports.options import HttpOptions

KEYS = {"a": "sk-a", "b": "sk-b"}
ACCESS = Access(keys={key_hash(key.encode()): name for name, key in KEYS.items()}, anonymous=None)
GEOMETRY = Geometry(blocks=512, context_length=1024, vocabulary=264, stop_ids=(257,))
TRIAL = Trial(characters=200, rounds=8)
LIMITS = Limits(max_batched_tokens=256)

Change = Callable[[Gateway], None]


def unchanged(gateway: Gateway) -> None:
    """A sound server."""


@asynccontextmanager
async def served(folder: Path, change: Change = unchanged) -> AsyncIterator[str]:
    """Its URL; `change` makes the gateway a leaky one."""
    executor = ChainExecutor(GEOMETRY)
    keeper = TextKeeper(folder / "texts.db", None, Policy({"a": 1, "b": 1}))
    transport = HttpTransport(structure({"port": 0}, HttpOptions, ""))
    async with embedded(executor, byte_text(), limits=LIMITS) as kernel:
        kernel.gateway.access, kernel.gateway.texts = ACCESS, keeper
        change(kernel.gateway)
        address: list[str] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(transport.run, kernel.gateway, address.append)
            while not address:
                await anyio.lowlevel.checkpoint()
            yield address[0]
            tasks.cancel_scope.cancel()
    keeper.close()


async def checked(url: str, trial: Trial = TRIAL, **keys: str) -> list[Check]:
    given = {**KEYS, **keys}
    async with tenant("A", url, given["a"]) as a, tenant("B", url, given["b"]) as b:
        return [check async for check in isolation(a, b, trial)]


def failing(checks: list[Check]) -> set[str]:
    return {check.name for check in checks if check.holds is False}


async def test_a_server_that_keeps_them_apart_passes(tmp_path: Path) -> None:
    async with served(tmp_path) as url:
        checks = await checked(url)

    assert failing(checks) == set(), [check for check in checks if check.holds is False]
    assert sum(check.holds is None for check in checks) == 2
    assert len(checks) > 20


async def test_two_keys_of_one_tenant_are_not_two_tenants(tmp_path: Path) -> None:
    async with served(tmp_path) as url:
        found = failing(await checked(url, b=KEYS["a"]))

    assert "A's prompt hits nothing of A's for B" in found
    assert "A's running request is not ended by B's cancel" in found
    assert any("GET /usage" in name for name in found)
    assert any("GET /text" in name for name in found)


async def test_a_prefix_that_all_share_is_found(tmp_path: Path) -> None:
    prefix = "You are a helpful assistant and nothing besides. " * 3

    def share(gateway: Gateway) -> None:
        assert gateway._prompts is not None
        public = (byte_text().encode(prefix),)
        gateway._prompts = attrs.evolve(gateway._prompts, public=public)

    async with served(tmp_path, share) as url:
        found = failing(await checked(url, attrs.evolve(TRIAL, prefix=prefix)))

    assert "A's prompt hits nothing of A's for B" in found
    assert "8 prompts of A's and as many new ones hit nothing for B" in found
    assert not any("GET" in name for name in found)


async def test_a_cache_that_all_share_is_found(tmp_path: Path) -> None:
    class Everybodys(Gateway):
        async def generate(self, call: Any) -> Any:
            return await super().generate(attrs.evolve(call, tenant="all"))

    def share(gateway: Gateway) -> None:
        gateway.__class__ = Everybodys

    async with served(tmp_path, share) as url:
        assert "A's prompt hits nothing of A's for B" in failing(await checked(url))


async def test_requests_that_all_can_see_are_found(tmp_path: Path) -> None:
    class Open(Gateway):
        def record(self, request_id: str, tenant: str, *, any_tenant: bool = False) -> Any:
            return super().record(request_id, tenant, any_tenant=True)

    def open_up(gateway: Gateway) -> None:
        gateway.__class__ = Open

    async with served(tmp_path, open_up) as url:
        found = failing(await checked(url))

    assert "A's running request is not ended by B's cancel" in found
    assert any("GET /usage of a request of A's that has ended" in name for name in found)
    assert any("POST /cancel of a request of A's that is running" in name for name in found)


async def test_an_operator_is_no_tenant_to_test_with(tmp_path: Path) -> None:
    def promote(gateway: Gateway) -> None:
        gateway.access = attrs.evolve(ACCESS, operators=frozenset({"b"}))

    async with served(tmp_path, promote) as url:
        found = failing(await checked(url))

    assert any("GET /text" in name for name in found)


async def test_a_label_in_anothers_sight_is_found(tmp_path: Path) -> None:
    async with served(tmp_path) as url, proxy(url) as between:
        found = failing(await checked(between))

    assert found == {"no id, label or text of A's is in B's sight"}


@asynccontextmanager
async def proxy(url: str) -> AsyncIterator[str]:
    """Passes everything on, and tells everybody the latest label in its list of models."""
    labels = [""]

    async def forward(request: web.Request) -> web.StreamResponse:
        label = request.headers.get("X-Request-Id", "")
        labels.append(label or labels[-1])
        kept = {"Authorization", "Content-Type", "X-Request-Id"}
        headers = {name: value for name, value in request.headers.items() if name in kept}
        body = await request.read()
        async with session.request(
            request.method, url + request.path, data=body, headers=headers
        ) as answer:
            shown = {name: answer.headers[name] for name in SHOWN if name in answer.headers}
            if request.path == "/v1/models":
                shown["X-Latest"] = labels[-1]
            response = web.StreamResponse(status=answer.status, headers=shown)
            await response.prepare(request)
            async for part in answer.content.iter_any():
                await response.write(part)
            return response

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", forward)
    async with AsyncExitStack() as held:
        session = await held.enter_async_context(aiohttp.ClientSession())
        runner = web.AppRunner(app)
        await runner.setup()
        held.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"


SHOWN = ("Content-Type", "Plancha-Request-Id", "X-Request-Id")


async def test_without_a_cache_it_says_that_nothing_was_shown(tmp_path: Path) -> None:
    async with served(tmp_path) as url:
        checks = await checked(url, Trial(characters=8, rounds=1))  # less than a block

    (own,) = [check for check in checks if check.name == "A's own prompt hits"]
    assert own.holds is False and "is there a prefix cache?" in own.detail


async def test_a_server_that_refuses_is_an_error_and_no_pass(tmp_path: Path) -> None:
    async with served(tmp_path) as url:
        with pytest.raises(SelftestError, match="none that it knows was given"):
            await checked(url, a="sk-nobody")


def key_files(folder: Path, *names: str) -> list[Path]:
    files = [folder / name for name in names]
    for file in files:
        if file.name in KEYS:
            file.write_text(KEYS[file.name] + "\n")
    return files


async def test_the_command_prints_a_table_or_an_object(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    one, other = key_files(tmp_path, "a", "b")
    async with served(tmp_path) as url:
        found = await anyio.to_thread.run_sync(partial(run, url, one, other, TRIAL))
        table = capfd.readouterr()
        await anyio.to_thread.run_sync(partial(run, url, one, other, TRIAL, as_json=True))
        printed = capfd.readouterr()

    assert found == 0
    assert "A's own prompt hits" in table.out and "0 of " in table.out
    (line,) = [line for line in printed.out.splitlines() if line.startswith("{")]  # and its logs
    told = json.loads(line)
    assert told["failed"] == 0
    assert {"name": "A's own prompt hits", "holds": True}.items() <= told["checks"][1].items()
    for said in (table, printed):
        assert not any(key in said.out + said.err for key in KEYS.values())


@pytest.mark.parametrize(("names", "told"), [("aa", "the same key"), ("ac", "cannot be read")])
def test_keys_that_cannot_be_of_two_tenants_are_a_mistake(
    tmp_path: Path, names: str, told: str
) -> None:
    one, other = key_files(tmp_path, *names)

    with pytest.raises(Mistake, match=told):
        run("http://127.0.0.1:1", one, other, TRIAL)


def test_prompts_are_new_each_time_and_as_long_as_asked() -> None:
    prompts = {TRIAL.prompt() for _ in range(50)}
    random.seed(0)
    again = TRIAL.prompt()
    random.seed(0)

    assert len(prompts) == 50 and {len(prompt) for prompt in prompts} == {200}
    assert TRIAL.prompt() != again


async def test_a_server_that_needs_no_keys_is_told_and_not_tested(tmp_path: Path) -> None:
    def open_up(gateway: Gateway) -> None:
        gateway.access = Access()

    one, other = key_files(tmp_path, "a", "b")
    async with served(tmp_path, open_up) as url:
        with pytest.raises(SelftestError, match="lets in whoever has any key"):
            await anyio.to_thread.run_sync(partial(run, url, one, other, TRIAL))
