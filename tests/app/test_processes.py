"""A parent, a worker and gateways as real processes, a scripted executor in place of a model."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import attrs
import pytest

from plancha.access import key_hash
from plancha_text.byte_text import byte_tokenizer

HANG_S = 60.0
KEY = "sk-acme"

PLUGINS = """
import json, sys, time
from plancha.contracts import Geometry, LoadError
from plancha.testing.executors import ScriptExecutor
from plancha_schedulers.fcfs import fcfs

GEOMETRY = Geometry(blocks=4096, context_length=4096, vocabulary=264, stop_ids=(257,))

class Paced(ScriptExecutor):
    def step(self, plan):
        time.sleep(0.005)
        return super().step(plan)

class Hanging(ScriptExecutor):
    def step(self, plan):
        print(json.dumps({"event": "hangs"}), file=sys.stderr, flush=True)
        while True:
            time.sleep(1)

class Failing(ScriptExecutor):
    def load(self, progress):
        raise LoadError("shard 2 of 3 is missing")

def say(event, sequence):
    print(json.dumps({"event": event, "id": sequence.request.id}), file=sys.stderr, flush=True)

class Telling:
    def __init__(self, inner):
        self.inner = inner
        self.waiting, self.victims, self.charge = inner.waiting, inner.victims, inner.charge
    def add(self, sequence, now):
        say("added", sequence)
        self.inner.add(sequence, now)
    def joined(self, sequence, cached):
        say("joined", sequence)
        self.inner.joined(sequence, cached)
    def remove(self, sequence):
        say("removed", sequence)
        self.inner.remove(sequence)

def paced(options, site):
    return Paced(lambda prompt: list(b"abcdefgh" * 500), GEOMETRY)

def hanging(options, site):
    return Hanging(lambda prompt: [65], GEOMETRY)

def failing(options, site):
    return Failing(lambda prompt: [65], GEOMETRY)

def telling(options, site):
    return Telling(fcfs({}, site))
"""

ENTRY_POINTS = """
[plancha.executors]
paced = told_plugins:paced
failing = told_plugins:failing
hanging = told_plugins:hanging
[plancha.schedulers]
telling = told_plugins:telling
"""


@attrs.define(eq=False)
class Server:
    """`plancha serve` with gateways, and what its processes have told."""

    process: subprocess.Popen[str]
    file: Path
    said: list[str] = attrs.field(factory=list)
    lines: list[dict[str, Any]] = attrs.field(factory=list)  # of the logs, whoever wrote them
    key: str | None = None  # of the clients to come

    async def until(self, holds: Callable[[], Any]) -> Any:
        """Wait for something that is about to hold; the hang guard is no expectation."""
        with anyio.fail_after(HANG_S):
            while not (found := holds()):  # noqa: ASYNC110
                await anyio.sleep(0.01)
        return found

    def told(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        return [
            line
            for line in list(self.lines)
            if line.get("event") == event and fields.items() <= line.items()
        ]

    async def ready(self) -> None:
        """Until both gateways serve, and have said so."""
        await self.until(lambda: self.said and len(self.gateways()) == 2)

    @property
    def url(self) -> str:
        return self.said[0].rpartition(" ")[2]

    def pid(self, which: str) -> int:
        """Of the process that has this place now."""
        return int(self.told("process_started", which=which)[-1]["pid"])

    def pids(self) -> list[int]:
        return [int(line["pid"]) for line in self.told("process_started")]

    def gateways(self) -> dict[str, str]:
        """Names in request ids, by the place that each gateway has now."""
        return {line["process"]: line["gateway"] for line in self.told("worker_found")}


@contextmanager
def started(folder: Path, **changes: Any) -> Iterator[Server]:
    """A server whose gateways may still be starting; killed at the end, if it still runs."""
    site, model = folder / "site", folder / "tiny"
    info = site / "told_plugins-1.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (site / "told_plugins.py").write_text(PLUGINS)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: told-plugins\nVersion: 1\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    model.mkdir(exist_ok=True)
    byte_tokenizer().tokenizer.save(str(model / "tokenizer.json"))
    file = folder / "deployment.toml"
    file.write_text(deployment(model, **changes))
    environment = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "plancha_app", "serve", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    server = Server(process, file)
    assert process.stdout is not None and process.stderr is not None
    out, err = process.stdout, process.stderr
    readers = [
        threading.Thread(target=lambda: server.said.extend(map(str.rstrip, out))),
        threading.Thread(target=lambda: server.lines.extend(map(parsed, err))),
    ]
    for reader in readers:
        reader.start()
    try:
        yield server
    finally:
        process.kill()  # its children end by themselves
        process.wait()
        for reader in readers:
            reader.join()  # and so no child is left that holds the pipes
        out.close()
        err.close()


def deployment(
    model: Path,
    *,
    gateways: int = 2,
    executor: str = "paced",
    port: int = 0,
    server: str = "",
    more: str = "",
) -> str:
    return f"""
model.name = "{model}"
batch = {{ max_sequences = 8 }}
executor.plugin = "{executor}"
scheduler.plugin = "telling"
transport.http = {{ port = {port} }}
server = {{ gateways = {gateways}, log_format = "json"{server and ", "}{server} }}
{more}
"""


def parsed(line: str) -> dict[str, Any]:
    try:
        told = json.loads(line)
    except ValueError:
        return {"event": line}
    return told if isinstance(told, dict) else {"event": line}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the tests that leave it as they found it."""
    with started(tmp_path_factory.mktemp("processes")) as server:
        yield server


@pytest.fixture
async def server(shared: Server) -> Server:
    await shared.ready()
    return shared


@asynccontextmanager
async def client_of(server: Server, gateway: str) -> AsyncIterator[aiohttp.ClientSession]:
    """A session whose only connection has come to the gateway of that name."""
    headers = {"Authorization": f"Bearer {server.key}"} if server.key else {}
    async with AsyncExitStack() as tried:
        with anyio.fail_after(HANG_S):
            found = False
            while not found:
                connector = aiohttp.TCPConnector(limit=1)
                session = aiohttp.ClientSession(server.url, connector=connector, headers=headers)
                await tried.enter_async_context(session)
                found = gateway in (await complete(session, 1))["id"]
        yield session


async def complete(session: aiohttp.ClientSession, max_tokens: int) -> Any:
    body = {"prompt": "x", "max_tokens": max_tokens}
    async with session.post("/v1/completions", json=body) as response:
        assert response.status == 200, await response.text()
        return await response.json()


@attrs.define(eq=False)
class Stream:
    """One stream of `POST /generate`: its id once the first token is there, its end later."""

    id: str = ""
    tokens: int = 0
    end: str | None = None  # the terminal event
    error: Any = None
    status: int = 0
    headers: Mapping[str, str] = attrs.field(factory=dict)

    async def run(self, session: aiohttp.ClientSession, max_tokens: int) -> None:
        body = {"prompt": "x", "max_tokens": max_tokens}
        event = "token"
        async with session.post("/generate", json=body) as response:
            self.status, self.headers = response.status, response.headers
            if response.status != 200:
                self.end, self.error = "refused", (await response.json())["error"]
            async for line in response.content:
                if line.startswith(b"event: "):
                    event = line[7:].strip().decode()
                elif line.startswith(b"data: ") and event == "token":
                    self.id, self.tokens = json.loads(line[6:])["id"], self.tokens + 1
                elif line.startswith(b"data: "):
                    assert self.end is None
                    self.end, self.error = event, json.loads(line[6:]).get("error")


def sessions(server: Server) -> aiohttp.ClientSession:
    """A connection for each request, to whichever gateway."""
    connector = aiohttp.TCPConnector(force_close=True, limit=0)
    return aiohttp.ClientSession(server.url, connector=connector)


async def test_a_request_is_readable_and_cancellable_through_every_gateway(server: Server) -> None:
    one, other = server.gateways().values()
    stream = Stream()
    async with (
        client_of(server, one) as owner,
        client_of(server, other) as stranger,
        anyio.create_task_group() as clients,
    ):
        clients.start_soon(stream.run, owner, 3000)
        await server.until(lambda: stream.tokens)
        async with stranger.get(f"/v1/requests/{stream.id}") as response:
            assert (response.status, (await response.json())["status"]) == (200, "generating")
        async with stranger.get(f"/v1/requests/{stream.id}/usage") as response:
            usage = await response.json()
            assert usage["input_tokens"] == 1
            assert 1 <= usage["output_tokens"] < 3000
        async with stranger.get(f"/v1/requests/{stream.id[:-4]}0000") as response:
            assert response.status == 404
        async with stranger.post(f"/v1/requests/{stream.id}/cancel") as response:
            assert response.status == 200
        await server.until(lambda: stream.end)
        async with stranger.get(f"/v1/requests/{stream.id}") as response:
            told = await response.json()
    assert (stream.end, stream.error["code"]) == ("error", "request_cancelled")
    assert (told["status"], told["outcome"]) == ("done", "cancelled")


async def test_limits_are_counted_for_all_gateways_and_reloaded_in_all(server: Server) -> None:
    before = server.file.read_text()
    one, other = server.gateways().values()
    streams = [Stream(), Stream()]
    async with (
        client_of(server, one) as first,
        client_of(server, other) as second,
        sessions(server) as anyone,
        anyio.create_task_group() as clients,
    ):
        acme = f'[tenants.acme]\nkeys = ["{key_hash(KEY.encode())}"]\nretention = "none"\n'
        acme += "max_running = 1\n"
        server.file.write_text(before + acme)
        server.process.send_signal(signal.SIGHUP)
        for client in (first, second):
            await answered(client, "/v1/models", 401)
            client.headers["Authorization"] = f"Bearer {KEY}"

        for client, stream in zip((first, second), streams, strict=True):
            clients.start_soon(stream.run, client, 200)
        await server.until(lambda: all(stream.end for stream in streams))
        events = [(line.get("event"), line.get("id")) for line in list(server.lines)]
        early, late = sorted(streams, key=lambda each: events.index(("joined", each.id)))
        assert events.index(("removed", early.id)) < events.index(("joined", late.id))

        server.file.write_text(before + "[tenants.acme]\nretention = 'none'\nweight = -1\n")
        server.process.send_signal(signal.SIGHUP)
        (line,) = await server.until(lambda: server.told("reload_refused"))
        assert (line["process"], "tenants.acme.weight" in str(line["problems"])) == ("parent", True)
        assert (await complete(first, 1))["usage"]["completion_tokens"] == 1  # the key still holds

        server.file.write_text(before)
        server.process.send_signal(signal.SIGHUP)
        for client in (first, second):
            del client.headers["Authorization"]
            await answered(client, "/v1/models", 200)
        assert (await complete(anyone, 1))["usage"]["completion_tokens"] == 1


async def test_queues_and_tokens_a_minute_are_counted_for_all_gateways_and_workers(
    server: Server,
) -> None:
    before = server.file.read_text()
    found = len(server.told("worker_found"))
    os.kill(server.pid("worker"), signal.SIGKILL)
    server.file.write_text(
        f"""{before}
        [tenants.acme]
        retention = "none"
        keys = ["{key_hash(KEY.encode())}"]
        tokens_per_minute = 100
        [tenants.busy]
        retention = "none"
        keys = ["{key_hash(b"sk-busy")}"]
        max_running = 1
        max_waiting = 1
        """
    )
    server.process.send_signal(signal.SIGHUP)  # while there is no worker
    await server.until(lambda: len(server.told("worker_found")) == found + 2)
    one, other = server.gateways().values()
    async with AsyncExitStack() as clients:
        server.key = KEY
        first = await clients.enter_async_context(client_of(server, one))
        second = await clients.enter_async_context(client_of(server, other))
        await complete(first, 300)
        refused = Stream()
        await refused.run(second, 1)
        assert (refused.status, refused.error["code"]) == (429, "tokens_per_minute")
        owed_s = (300 - 100) * 60 / 100  # and for what `client_of` asked, less what came since
        assert owed_s / 2 < int(refused.headers["Retry-After"]) < 2 * owed_s

        server.key = "sk-busy"
        first = await clients.enter_async_context(client_of(server, one))
        second = await clients.enter_async_context(client_of(server, other))
        third = await clients.enter_async_context(client_of(server, other))
        runs, waits, refused = Stream(), Stream(), Stream()
        added = len(server.told("added"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(runs.run, first, 3000)
            await server.until(lambda: runs.tokens)
            tasks.start_soon(waits.run, second, 1)
            await server.until(lambda: len(server.told("added")) == added + 2)
            await refused.run(third, 1)
            assert (refused.status, refused.error["code"]) == (429, "tenant_queue_full")
            async with third.post(f"/v1/requests/{runs.id}/cancel") as response:
                assert response.status == 200
        assert (waits.end, waits.tokens) == ("done", 1)

    server.key = None
    server.file.write_text(before)
    server.process.send_signal(signal.SIGHUP)
    async with sessions(server) as anyone:
        for _ in range(2):
            await answered(anyone, "/v1/models", 200)


async def answered(client: aiohttp.ClientSession, path: str, status: int) -> None:
    """Wait until a GET is answered so."""
    with anyio.fail_after(HANG_S):
        while True:
            async with client.get(path) as response:
                await response.read()
                if response.status == status:
                    return
            await anyio.sleep(0.01)


async def test_a_lost_gateway_takes_its_own_streams_along_and_is_replaced(server: Server) -> None:
    (place, doomed), (_, other) = server.gateways().items()
    lost, kept = [Stream(), Stream()], Stream()

    async def lose(stream: Stream) -> None:
        with pytest.raises(aiohttp.ClientError):
            async with client_of(server, doomed) as session:
                await stream.run(session, 3000)

    async with anyio.create_task_group() as clients:
        for stream in lost:
            clients.start_soon(lose, stream)

        async def keep() -> None:
            async with client_of(server, other) as session:
                await kept.run(session, 300)

        clients.start_soon(keep)
        await server.until(lambda: all(stream.tokens for stream in (*lost, kept)))
        assert kept.tokens < 300

        os.kill(server.pid(place), signal.SIGKILL)

    for stream in lost:
        await server.until(partial(server.told, "removed", id=stream.id))
        assert stream.tokens < 3000
    assert (kept.end, kept.tokens) == ("done", 300)
    (died,) = server.told("process_died", which=place)
    assert died["code"] == -signal.SIGKILL
    replacement = await server.until(
        lambda: server.gateways()[place] != doomed and server.gateways()[place]
    )
    async with client_of(server, replacement) as session:
        assert (await complete(session, 3))["choices"][0]["text"] == "abc"


async def test_a_lost_worker_ends_every_request_and_is_replaced(server: Server) -> None:
    streams = [Stream() for _ in range(5)]
    plain: list[tuple[int, Any]] = []
    queued: list[tuple[int, Any]] = []
    socket_ends: list[Any] = []
    before = len(server.told("added")), len(server.told("joined"))
    found = len(server.told("worker_found"))

    async def ask(session: aiohttp.ClientSession, answers: list[tuple[int, Any]]) -> None:
        body = {"prompt": "x", "max_tokens": 3000}
        async with session.post("/v1/completions", json=body) as response:
            answers.append((response.status, await response.json()))

    async def converse(session: aiohttp.ClientSession) -> None:
        async with session.ws_connect("/v1/stream") as socket:
            await socket.send_json(
                {"type": "generate", "id": "a", "prompt": "x", "max_tokens": 3000}
            )
            async for message in socket:
                told = json.loads(message.data)
                if told["type"] not in ("queued", "token", "tokens"):
                    socket_ends.append(told)
                    return
            socket_ends.append(socket.close_code)

    async with sessions(server) as session, anyio.create_task_group() as clients:
        for stream in streams:
            clients.start_soon(stream.run, session, 3000)
        for _ in range(2):
            clients.start_soon(ask, session, plain)
        clients.start_soon(converse, session)
        await server.until(lambda: len(server.told("joined")) == before[1] + 8)
        for _ in range(3):
            clients.start_soon(ask, session, queued)
        await server.until(lambda: len(server.told("added")) == before[0] + 11)
        await server.until(lambda: all(stream.tokens for stream in streams))

        os.kill(server.pid("worker"), signal.SIGKILL)
        await answered(session, "/health/ready", 503)

    assert [stream.end for stream in streams] == ["error"] * 5
    assert {stream.error["code"] for stream in streams} == {"worker_lost"}
    assert [status for status, _ in (*plain, *queued)] == [503] * 5
    assert {answer["error"]["code"] for _, answer in (*plain, *queued)} == {"worker_lost"}
    (end,) = socket_ends
    assert (end["type"], end["error"]["code"]) == ("error", "worker_lost")

    await server.until(lambda: len(server.told("worker_found")) == found + 2)
    for name in server.gateways().values():
        async with client_of(server, name) as client:
            assert (await complete(client, 3))["choices"][0]["text"] == "abc"


async def test_told_to_stop_the_gateways_drain_and_then_the_worker_ends(tmp_path: Path) -> None:
    with started(tmp_path, server="drain_timeout_s = 3") as server:
        await server.ready()
        short, long = Stream(), Stream()
        one, other = server.gateways().values()
        async with (
            client_of(server, one) as first,
            client_of(server, other) as second,
            anyio.create_task_group() as clients,
        ):
            clients.start_soon(short.run, first, 30)
            clients.start_soon(long.run, second, 4000)
            await server.until(lambda: short.tokens and long.tokens)
            server.process.send_signal(signal.SIGTERM)
            await server.until(lambda: len(server.told("draining")) == 2)
        with anyio.fail_after(HANG_S):
            await anyio.to_thread.run_sync(server.process.wait)
        assert server.process.returncode == 0
        await nobody_left(server)
    assert (short.end, short.tokens) == ("done", 30)
    assert (long.end, long.error["code"]) == ("error", "draining")
    assert {line["process"] for line in server.told("draining")} == {"gateway-1", "gateway-2"}


async def test_when_the_parent_is_killed_its_children_end_by_themselves(tmp_path: Path) -> None:
    with started(tmp_path) as server:
        await server.ready()
        stream = Stream()
        async with sessions(server) as session, anyio.create_task_group() as clients:
            clients.start_soon(stream.run, session, 4000)
            await server.until(lambda: stream.tokens)
            server.process.kill()
        await nobody_left(server)
        (line,) = server.told("process_started", which="worker")
        assert not Path(line["link"]).parent.exists()
    assert stream.end == "error"


async def test_told_twice_to_stop_nothing_is_waited_for(tmp_path: Path) -> None:
    with started(tmp_path, server="drain_timeout_s = 1000") as server:
        await server.ready()
        streams = [Stream(), Stream()]
        async with AsyncExitStack() as clients, anyio.create_task_group() as tasks:
            for stream, name in zip(streams, server.gateways().values(), strict=True):
                client = await clients.enter_async_context(client_of(server, name))
                tasks.start_soon(stream.run, client, 4000)
            await server.until(lambda: all(stream.tokens for stream in streams))
            server.process.send_signal(signal.SIGINT)
            await server.until(lambda: len(server.told("draining")) == 2)
            server.process.send_signal(signal.SIGTERM)
        await ended(server, 0)
    assert [(stream.end, stream.error["code"]) for stream in streams] == [("error", "draining")] * 2


async def test_told_to_stop_while_its_processes_start_it_stops(tmp_path: Path) -> None:
    with started(tmp_path, server="drain_timeout_s = 1000") as server:
        await server.until(lambda: server.told("process_started"))
        server.process.send_signal(signal.SIGTERM)
        await ended(server, 0)
    assert server.said == []
    assert server.told("process_died") == []


async def test_a_worker_that_hangs_makes_its_gateway_unready_until_it_goes_on(
    tmp_path: Path,
) -> None:
    with started(tmp_path, gateways=1, server="step_deadline_s = 0.5") as server:
        await server.until(lambda: server.said and server.gateways())
        stream = Stream()
        async with sessions(server) as session, anyio.create_task_group() as clients:
            clients.start_soon(stream.run, session, 200)
            await server.until(lambda: stream.tokens)
            os.kill(server.pid("worker"), signal.SIGSTOP)
            try:
                await answered(session, "/health/ready", 503)
                await answered(session, "/health/live", 200)
                assert server.told("engine_stalled", process="gateway-1")
            finally:
                os.kill(server.pid("worker"), signal.SIGCONT)
            await answered(session, "/health/ready", 200)
        assert (stream.end, stream.tokens) == ("done", 200)
        os.kill(server.pid("worker"), signal.SIGSTOP)  # and one that hangs holds up no stop
        server.process.send_signal(signal.SIGTERM)
        await ended(server, 0)


@pytest.mark.parametrize("gateways", [0, 1])
async def test_a_step_that_never_ends_holds_up_no_stop(tmp_path: Path, gateways: int) -> None:
    settings = "drain_timeout_s = 0.1"
    with started(tmp_path, gateways=gateways, executor="hanging", server=settings) as server:
        await server.until(lambda: server.said)
        stream = Stream()
        async with sessions(server) as session, anyio.create_task_group() as clients:
            clients.start_soon(stream.run, session, 3)
            await server.until(lambda: server.told("hangs"))
            server.process.send_signal(signal.SIGTERM)
        await ended(server, 0)
    assert stream.error["code"] == "draining"


async def ended(server: Server, code: int) -> None:
    await server.until(lambda: server.process.poll() is not None)
    assert server.process.returncode == code
    await server.until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in server.pids()))
    for line in server.told("process_started"):
        assert not Path(line["link"]).parent.exists()


async def nobody_left(server: Server) -> None:
    assert len(server.pids()) == 3
    await server.until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in server.pids()))


async def test_a_model_that_does_not_load_ends_all_with_its_reason(tmp_path: Path) -> None:
    with started(tmp_path, executor="failing", gateways=1) as server:
        with anyio.fail_after(HANG_S):
            assert await anyio.to_thread.run_sync(server.process.wait) == 1
        await server.until(lambda: server.said)
    assert server.said == ["plancha: shard 2 of 3 is missing"]


async def test_a_port_that_is_taken_is_not_shared_with_whoever_has_it(
    server: Server, tmp_path: Path
) -> None:
    port = int(server.url.rpartition(":")[2])
    with started(tmp_path, port=port) as second:
        with anyio.fail_after(HANG_S):
            assert await anyio.to_thread.run_sync(second.process.wait) == 1
        (told,) = await second.until(lambda: second.said)
    assert f"port {port}" in told
    assert second.told("process_started") == []


def test_a_gateway_never_imports_torch() -> None:
    source = (
        "import sys, plancha_app.gateway_process, plancha_transports.http\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & "
        "{'torch', 'numba', 'cupy', 'plancha_engine'}))"
    )
    command = [sys.executable, "-c", source]
    told = subprocess.run(command, check=True, capture_output=True, text=True)

    assert told.stdout == "[]\n"
