"""Three times what a real server can do, over HTTP, by the real clock.

    python benchmarks/overload_server.py [--minutes 10] [--scheduler priority-preempt]

Starts `plancha serve` with two tenants in two tiers, measures how many requests a second it can
finish, then lets more come than that, at random and whether or not it answers. Who is refused does
not come back. Everybody must get an end: an answer, a refusal or an error event.
"""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from random import Random
from socket import socket
from tempfile import TemporaryDirectory
from typing import Annotated

import aiohttp
import anyio
import anyio.to_thread
import attrs
import cyclopts
import numpy as np
import orjson
from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

KEYS = {"interactive": "pk-interactive", "batch": "pk-batch"}
TIERS = {"interactive": 0, "batch": 1}
START_S = 600.0
"""For the model to be fetched and loaded."""

PATIENCE_S = 180.0
"""Longer than the queue's deadline and the longest answer: who has no end by then hangs."""

CLIENTS = 24
"""Of the closed loop that measures: half as many again as the batch has slots."""

FILE = """
[model]
name = "{model}"
[batch]
max_sequences = 16
max_waiting = 256
queue_timeout_s = 30
[scheduler]
plugin = "{scheduler}"
[tenants.interactive]
retention = "none"
tier = 0
keys = ["{interactive}"]
[tenants.batch]
retention = "none"
tier = 1
max_waiting = 200
keys = ["{batch}"]
[tiers.0]
ttft_target_s = {targets[0]}
[tiers.1]
ttft_target_s = {targets[1]}
[transport.http]
port = {port}
[server]
log_level = "warning"
"""

console = Console(width=140)


@attrs.frozen(kw_only=True)
class Load:
    """What is asked. Lengths are in tokens; each output is exactly so long."""

    model: str = "smollm2"
    scheduler: str = "fair-queue"
    minutes: float = 10.0
    times: float = 3.0  # of what the server can do
    interactive: float = 0.5  # of those
    prompts: tuple[int, int] = (32, 256)  # from, to
    outputs: tuple[int, int] = (16, 96)
    targets: tuple[float, float] = (8.0, 40.0)  # seconds to the first token, by tier
    capacity_s: float = 60.0  # how long to measure what the server can do
    seed: int = 0


DEFAULT = Load()


@attrs.define(eq=False)
class Books:
    """What became of one tenant's requests."""

    offered: int = 0
    ended: int = 0
    done: int = 0
    codes: Counter[str] = attrs.field(factory=Counter)  # of refusals and errors, "429 overloaded"
    hung: int = 0
    first_token_s: list[float] = attrs.field(factory=list)


class Client:
    """Asks as either tenant, and keeps the books of what comes back."""

    def __init__(self, session: aiohttp.ClientSession, url: str, load: Load) -> None:
        self.books = {name: Books() for name in KEYS}
        self.latest_ends: list[float] = []
        self._session = session
        self._url = url
        self._load = load
        self._chance = Random(load.seed)

    async def ask(self, tenant: str) -> int | None:
        """One request to its end; seconds after which the server wants to be asked again."""
        books, began = self.books[tenant], time.perf_counter()
        books.offered += 1
        retry_after: int | None = None
        try:
            async with (
                self._session.post(
                    f"{self._url}/v1/completions",
                    data=self._body(),
                    headers={
                        "Authorization": f"Bearer {KEYS[tenant]}",
                        "Content-Type": "application/json",
                    },
                ) as response,
            ):
                if response.status == 200:
                    await self._read(response, books, began)
                else:
                    error = orjson.loads(await response.read())["error"]
                    books.codes[f"{response.status} {error['code']}"] += 1
                    retry_after = int(response.headers.get("Retry-After", 1))
        except TimeoutError:
            books.hung += 1
        except aiohttp.ClientError as error:
            books.codes[type(error).__name__] += 1
        books.ended += 1
        return retry_after

    async def _read(self, response: aiohttp.ClientResponse, books: Books, began: float) -> None:
        first_s, end = None, b""
        async for line in response.content:
            if not line.startswith(b"data: "):
                continue
            end = line[6:].strip()
            if first_s is None and b'"text"' in end:
                first_s = time.perf_counter() - began
                books.first_token_s.append(first_s)
        if end == b"[DONE]":
            books.done += 1
            self.latest_ends.append(time.perf_counter())
        else:
            error = orjson.loads(end).get("error", {}) if end else {}
            books.codes[f"event {error.get('code', 'cut off')}"] += 1

    def _body(self) -> bytes:
        chance, load = self._chance, self._load
        prompt = [chance.randrange(300, 4000) for _ in range(chance.randint(*load.prompts))]
        fields = {
            "prompt": prompt,
            "max_tokens": chance.randint(*load.outputs),
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
        }
        return orjson.dumps(fields)


async def measure(load: Load, url: str, process: int) -> None:
    """Capacity, then the flood, then what came of it."""
    timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        await ready(session, url)
        most = await capacity(Client(session, url, load), load)
        client, memory = Client(session, url, load), [resident_mb(process)]
        console.print(
            f"{most:.2f} requests/s with a full batch; offering {load.times:g} times that"
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch, process, memory, tasks.cancel_scope)
            async with anyio.create_task_group() as clients:
                await flood(client, load, most, clients)
            tasks.cancel_scope.cancel()
        memory.append(resident_mb(process))
    report(client, load, most, memory)


async def ready(session: aiohttp.ClientSession, url: str) -> None:
    """Wait until the server takes requests. Raises `TimeoutError`."""
    with anyio.fail_after(START_S):
        while True:
            try:
                async with session.get(f"{url}/health/ready") as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await anyio.sleep(0.2)


async def capacity(client: Client, load: Load) -> float:
    """Requests finished a second by a closed loop of more clients than the batch has slots.

    The first third of the time only fills the batch.
    """
    began = time.perf_counter()
    end = began + load.capacity_s

    async def keep_asking(tenant: str) -> None:
        while time.perf_counter() < end:
            retry_after = await client.ask(tenant)
            await anyio.sleep(retry_after or 0)

    async with anyio.create_task_group() as clients:
        for number in range(CLIENTS):
            clients.start_soon(keep_asking, tuple(KEYS)[number % len(KEYS)])
    settled = began + load.capacity_s / 3
    ends = [at for at in client.latest_ends if settled <= at <= end]
    if not ends:
        raise SystemExit(f"nothing was finished in {load.capacity_s:g} s: {client.books}")
    return len(ends) / (end - settled)


async def flood(client: Client, load: Load, most: float, clients: anyio.abc.TaskGroup) -> None:
    """Requests of both tenants, each as a Poisson process, for so many minutes."""
    chance = Random(load.seed + 1)
    rates = {
        "interactive": load.interactive * most,
        "batch": (load.times - load.interactive) * most,
    }
    began = time.perf_counter()
    arrivals = {name: chance.expovariate(rate) for name, rate in rates.items()}
    while (due_s := min(arrivals.values())) < 60 * load.minutes:
        tenant = min(arrivals, key=lambda name: arrivals[name])
        await anyio.sleep(max(0.0, began + due_s - time.perf_counter()))
        clients.start_soon(client.ask, tenant)
        arrivals[tenant] += chance.expovariate(rates[tenant])


async def watch(process: int, memory: list[float], scope: anyio.CancelScope) -> None:
    """Task: the server's memory, every few seconds; stops everything when the server has ended."""
    while True:
        await anyio.sleep(5)
        try:
            memory.append(await anyio.to_thread.run_sync(resident_mb, process))
        except ValueError:
            console.print("[red]the server has ended")
            scope.cancel()


def resident_mb(process: int) -> float:
    """Of the server's main process. Raises `ValueError` when there is none."""
    found = subprocess.run(["ps", "-o", "rss=", "-p", str(process)], capture_output=True, text=True)
    return int(found.stdout) / 1024


def report(client: Client, load: Load, most: float, memory: list[float]) -> None:
    """A table, memory, and one JSON line with all of it."""
    table = Table(
        *("tier", "offered", "answered", "TTFT p50", "p99", "target", "in time", "hung"),
        "refused or broken off",
        title=f"{load.times:g} times {most:.2f} requests/s for {load.minutes:g} minutes, "
        f"{load.scheduler}",
    )
    rows = {}
    for tenant, books in client.books.items():
        target_s = load.targets[TIERS[tenant]]
        p50, p99 = np.percentile(books.first_token_s or [np.nan], [50, 99])
        in_time = float(np.mean(np.array(books.first_token_s or [np.nan]) <= target_s))
        hung = books.hung + books.offered - books.ended
        rows[tenant] = {
            "offered": books.offered,
            "answered": books.done,
            "ttft_p50_s": round(float(p50), 3),
            "ttft_p99_s": round(float(p99), 3),
            "target_s": target_s,
            "in_time": round(in_time, 4),
            "hung": hung,
            "codes": dict(books.codes),
        }
        codes = ", ".join(f"{code}: {count:,}" for code, count in books.codes.most_common())
        table.add_row(
            f"{TIERS[tenant]}",
            f"{books.offered:,}",
            f"{books.done:,}",
            f"{p50:.2f} s",
            f"{p99:.2f} s",
            f"{target_s:g} s",
            f"{in_time:.1%}",
            f"{hung}",
            codes or "none",
        )
    console.print(table)
    tenths = [memory[round(i * (len(memory) - 1) / 10)] for i in range(11)]
    shown = " ".join(f"{each:.0f}" for each in tenths)
    console.print(f"resident memory of the server over that time, MB: {shown}")
    found = {"requests_per_s": most, "tenants": rows, "memory_mb": [round(each) for each in tenths]}
    print(orjson.dumps({**attrs.asdict(load), **found}).decode())


@contextmanager
def serving(load: Load) -> Iterator[tuple[str, int]]:
    """The address and the process of a server that runs for as long as the block does."""
    with socket() as probe, TemporaryDirectory() as folder:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        hashes = {who: f"sha256:{sha256(key.encode()).hexdigest()}" for who, key in KEYS.items()}
        file = Path(folder) / "overload.toml"
        settings = attrs.asdict(load, recurse=False)
        settings.update({"port": port, **hashes})
        file.write_text(FILE.format(**settings))
        command = [sys.executable, "-m", "plancha_app", "serve", str(file)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            yield f"http://127.0.0.1:{port}", process.pid
        finally:
            process.terminate()
            process.wait()


def main(load: Annotated[Load, Parameter(name="*", negative="")] = DEFAULT) -> None:
    """Start the server, flood it, and say what became of everybody."""
    with serving(load) as (url, process):
        anyio.run(measure, load, url, process)


if __name__ == "__main__":
    cyclopts.run(main)
