"""SIGHUP: a deployment read again by a server that runs, with real signals and sockets."""

import hashlib
import importlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import attrs
import pytest
import structlog

from plancha.contracts import Tenant, Text
from plancha.testing.gate import GatedExecutor
from plancha_app.assembly import prepare
from plancha_app.deployment import Deployment, DeploymentError
from plancha_app.reloading import changed_keys, reloaded
from plancha_app.serve import Server
from plancha_engine.report import Report
from plancha_text.byte_text import byte_text

Write = Callable[[str], Path]

HANG_S = 30

EXECUTOR = """
import threading
from plancha.contracts import Geometry
from plancha.testing.executors import ScriptExecutor
from plancha.testing.gate import GatedExecutor

GEOMETRY = Geometry(blocks=64, context_length=256, vocabulary=264, stop_ids=(257,))
loading_may_end = threading.Event()
gated = GatedExecutor(ScriptExecutor(lambda prompt: list(b"abcdefgh"), GEOMETRY))

class Slow(GatedExecutor):
    def load(self, progress):
        loading_may_end.wait(30)
        return self.inner.load(progress)

def make(options, site):
    return gated

def slow(options, site):
    return Slow(gated.inner)
"""

ACME, BETA = "pk-acme", "pk-beta"


def sha(key: str) -> str:
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


def text(*tenants: str, more: str = "", executor: str = "gated", batch: str = "") -> str:
    return "\n".join(
        (
            more,
            f"[executor]\nplugin = '{executor}'",
            f"[batch]\nmax_sequences = 2\n{batch}",
            "[transport.http]\nport = 0",
            *tenants,
        )
    )


def tenant(name: str, key: str, **limits: object) -> str:
    rest = "".join(f"{limit} = {value}\n" for limit, value in limits.items())
    return f"[tenants.{name}]\nkeys = ['{sha(key)}']\nretention = 'none'\n{rest}"


@pytest.fixture(autouse=True)
def scripted(install: Callable[..., None]) -> None:
    install(
        "scripted", "scripted_executor", EXECUTOR, "plancha.executors", gated="make", slow="slow"
    )


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as entries:
        yield entries


@attrs.frozen
class Running:
    """A server whose file can be written again, and what it logs."""

    server: Server
    write: Write
    logged: list[Any]

    @property
    def url(self) -> str:
        return self.server.addresses[0]

    async def hang_up(self, text: str) -> dict[str, Any]:
        """Write the file, send the signal, and wait for what is logged of it."""
        self.write(text)
        before = len(self.reloads())
        os.kill(os.getpid(), signal.SIGHUP)
        while len(self.reloads()) == before:  # noqa: ASYNC110
            await anyio.sleep(0.001)
        entry: dict[str, Any] = self.reloads()[-1]
        return entry

    def reloads(self) -> list[Any]:
        return [entry for entry in self.logged if entry["event"].startswith("reload")]

    async def complete(self, key: str, prompt: str = "x") -> tuple[int, Any]:
        body = {"prompt": prompt, "max_tokens": 4}
        headers = {"Authorization": f"Bearer {key}"}
        url = f"{self.url}/v1/completions"
        async with aiohttp.request("POST", url, json=body, headers=headers) as response:
            return response.status, await response.json()


def open_model(name: str, report: Report) -> tuple[Path, Text]:
    return Path("tiny"), byte_text()


@asynccontextmanager
async def serving(path: Path, write: Write, logged: list[Any]) -> AsyncIterator[Running]:
    _, deployment = prepare(path)
    said: list[str] = []
    server = Server(deployment=deployment, path=path, open_model=open_model, say=said.append)
    with anyio.fail_after(HANG_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.run)
            while not server.addresses:
                await anyio.lowlevel.checkpoint()
            yield Running(server, write, logged)
            tasks.cancel_scope.cancel()


async def ready(running: Running) -> None:
    while running.server.gateway.state != "ready":
        await anyio.lowlevel.checkpoint()


def gated() -> GatedExecutor:
    executor: GatedExecutor = importlib.import_module("scripted_executor").gated
    return executor


async def test_a_stream_goes_on_while_its_tenant_is_removed_and_another_comes(
    deployment_file: Write, logged: list[Any]
) -> None:
    path = deployment_file(text(tenant("acme", ACME)))
    async with serving(path, deployment_file, logged) as running:
        await ready(running)
        answers: list[tuple[int, Any]] = []

        async def keep() -> None:
            answers.append(await running.complete(ACME))

        async with anyio.create_task_group() as clients:
            clients.start_soon(keep)
            await gated().run(1)
            await gated().started()
            entry = await running.hang_up(text(tenant("beta", BETA)))
            refused, error = await running.complete(ACME)
            gated().open()
        served, _ = await running.complete(BETA)

    assert entry["event"] == "reloaded"
    assert set(entry["changed"]) >= {"tenants.acme.keys", "tenants.beta.keys"}
    ((code, answer),) = answers
    assert (code, answer["choices"][0]["text"]) == (200, "abcd")
    assert (refused, error["error"]["code"]) == (401, "invalid_api_key")
    assert served == 200


async def test_a_key_is_replaced_by_another_while_both_are_good(
    deployment_file: Write, logged: list[Any]
) -> None:
    new = "pk-acme-2"
    both = f"[tenants.acme]\nretention = 'none'\nkeys = ['{sha(ACME)}', '{sha(new)}']\n"
    path = deployment_file(text(tenant("acme", ACME)))
    async with serving(path, deployment_file, logged) as running:
        await ready(running)
        gated().open()
        codes = []
        for tables in (None, both, tenant("acme", new)):
            if tables is not None:
                await running.hang_up(text(tables))
            codes.append([(await running.complete(key))[0] for key in (ACME, new)])

    assert codes == [[200, 401], [200, 200], [401, 200]]


async def test_a_running_limit_takes_effect_in_the_next_step(
    deployment_file: Write, logged: list[Any]
) -> None:
    """One of two may run; once both may, the other has its first token before the first ends."""
    path = deployment_file(text(tenant("acme", ACME, max_running=1)))
    async with serving(path, deployment_file, logged) as running:
        await ready(running)
        gateway = running.server.gateway

        def states() -> list[str]:
            return [each.record.state for each in gateway.outboxes.running.values()]

        async with anyio.create_task_group() as clients:
            for prompt in ("one", "two"):
                clients.start_soon(running.complete, ACME, prompt)
            await gated().run(1)
            await gated().started()
            while len(states()) < 2:
                await anyio.lowlevel.checkpoint()
            assert sorted(states()) == ["generating", "queued"]
            await running.hang_up(text(tenant("acme", ACME, max_running=2)))
            gated().commit()
            await gated().started()
            while states() != ["generating"] * 2:
                await anyio.lowlevel.checkpoint()
            gated().open()


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ("a = ", "Invalid value"),
        (text(f"[tenants.acme]\nretention = 'none'\nkeys = ['{BETA}']"), "tenants.acme.keys[0]"),
        (text(more="[schedular]"), "schedular"),
        (text(tenant("acme", ACME), batch="max_batched_tokens = 512"), "needs a restart"),
        (text(tenant("acme", ACME), executor="slow"), "executor.plugin: changed from"),
    ],
)
async def test_a_bad_file_changes_nothing_and_says_why(
    deployment_file: Write, logged: list[Any], bad: str, problem: str
) -> None:
    path = deployment_file(text(tenant("acme", ACME)))
    async with serving(path, deployment_file, logged) as running:
        await ready(running)
        gated().open()
        before = running.server.deployment, running.server.gateway.access

        entry = await running.hang_up(bad)

        assert (running.server.deployment, running.server.gateway.access) == before
        assert [(await running.complete(key))[0] for key in (ACME, BETA)] == [200, 401]
    assert (entry["event"], entry["log_level"]) == ("reload_refused", "error")
    assert problem in "\n".join(entry["problems"])
    assert BETA not in str(entry)


async def test_what_is_reloaded_while_the_model_loads_reaches_its_worker(
    deployment_file: Write, logged: list[Any]
) -> None:
    path = deployment_file(text(tenant("acme", ACME), executor="slow"))
    async with serving(path, deployment_file, logged) as running:
        after = text(tenant("acme", ACME, weight=3.0), executor="slow", batch="max_waiting = 1")
        await running.hang_up(after)
        importlib.import_module("scripted_executor").loading_may_end.set()
        await ready(running)
        async with aiohttp.request(
            "POST",
            f"{running.url}/v1/completions",
            json={"prompt": ["x"] * 9, "max_tokens": 1},
            headers={"Authorization": f"Bearer {ACME}"},
        ) as response:
            status, answer = response.status, await response.json()

    assert (status, answer["error"]["code"]) == (400, "too_many_sequences")


async def test_the_log_level_is_taken_over(deployment_file: Write, logged: list[Any]) -> None:
    path = deployment_file(text())
    before = logging.getLogger().level
    try:
        async with serving(path, deployment_file, logged) as running:
            entry = await running.hang_up(text(more="server.log_level = 'error'"))
            assert entry["changed"] == ["server.log_level"]
            while logging.getLogger().level != logging.ERROR:
                await anyio.lowlevel.checkpoint()
    finally:
        logging.getLogger().setLevel(before)


BASE = "executor.plugin = 'gated'\n"


def started(path: Path, **where: Any) -> Deployment:
    return prepare(path, **where)[1]


def test_what_can_be_reloaded_is(deployment_file: Write) -> None:
    before = started(deployment_file(BASE))
    path = deployment_file(
        BASE
        + """
        batch = { max_waiting = 5, queue_timeout_s = 1.5 }
        server = { anonymous = "guests", log_level = "debug" }
        tiers = { 1 = { ttft_target_s = 4 } }
        [tenants.guests]
        retention = "none"
        weight = 2
        tier = 1
        """
    )

    deployment, reload = reloaded(before, path)

    assert deployment == started(path)
    assert reload.tenants == {"guests": Tenant(weight=2.0, tier=1)}
    assert (reload.max_waiting, reload.queue_timeout_s) == (5, 1.5)
    assert reload.ttft_targets_s == {1: 4.0}
    assert set(changed_keys(before, deployment)) == {
        "batch.max_waiting",
        "batch.queue_timeout_s",
        "server.anonymous",
        "server.log_level",
        "tiers.1.ttft_target_s",
        *(
            f"tenants.guests.{field.name}"
            for field in attrs.fields(type(deployment.tenants["guests"]))
        ),
    }


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("kv.block_size = 32", "kv.block_size: changed from 16 to 32; needs a restart"),
        (
            "server.drain_timeout_s = 1",
            "server.drain_timeout_s: changed from 30.0 to 1.0; needs a restart",
        ),
        (
            "scheduler = { plugin = 'fcfs' }",
            'scheduler.plugin: changed from "fair-queue" to "fcfs"; needs a restart',
        ),
        (
            "transport.http.max_n = 3",
            "transport.http.max_n: changed from nothing to 3; needs a restart",
        ),
        (
            "transport.http.api_key = 'hunter2'",
            'transport.http.api_key: changed from nothing to "…"; needs a restart',
        ),
        (
            "model.public_prefixes = ['You are']",
            'model.public_prefixes: changed from [] to ["You are"]; needs a restart',
        ),
    ],
)
def test_every_other_key_is_refused_by_name(deployment_file: Write, more: str, told: str) -> None:
    before = started(deployment_file(BASE))
    path = deployment_file(f"{BASE}tenants.acme.retention = 'none'\n{more}\n")

    with pytest.raises(DeploymentError) as caught:
        reloaded(before, path)

    assert caught.value.problems == (told,)


def test_what_the_command_line_said_is_no_change(deployment_file: Write) -> None:
    path = deployment_file(f"{BASE}transport.http.port = 1\n")
    before = started(path, host="localhost", port=9)

    deployment, _ = reloaded(before, path)
    assert deployment == before
    again, _ = reloaded(deployment, path)
    assert again == before

    with pytest.raises(DeploymentError, match=r"transport\.http\.max_n"):
        reloaded(before, deployment_file(f"{BASE}transport.http.max_n = 1\n"))


def test_the_last_key_of_an_open_server_cannot_be_taken_away(deployment_file: Write) -> None:
    here = f"{BASE}transport.http.host = '0.0.0.0'\n"
    before = started(
        deployment_file(f"{here}tenants.acme = {{ retention = 'none', keys = ['{sha(ACME)}'] }}\n")
    )

    with pytest.raises(DeploymentError, match="nobody needs a key"):
        reloaded(before, deployment_file(f"{here}tenants.acme.retention = 'none'\n"))


def test_without_a_file_there_is_nothing_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert reloaded(Deployment(), None)[0] == Deployment()
