"""A light tenant beside one that floods the server, over HTTP, with keys and the default model.

    python benchmarks/fairness_server.py [--requests 40]

What `fairness.py` shows in virtual time, on a real server: the light tenant's time to the first
token while the other one just fills the batch, and while it has a backlog.
"""

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import aiohttp
import anyio
import cyclopts
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from plancha_app.bench.client import Outcome, ask
from plancha_app.bench.job import Job
from plancha_app.bench.workload import Ask, workload

SLOTS = 8
BACKLOG = 48
"""Requests that the flooding tenant has waiting at any time."""

MEAN_GAP_S = 1.0
"""Between the end of one request of the light tenant and its next, on average."""

KEYS = {name: f"pk-benchmark-{name}" for name in ("light", "flood")}
DEPLOYMENT = """
[batch]
max_sequences = {slots}
[scheduler]
plugin = "{scheduler}"
[transport.http]
port = 0
[server]
log_level = "warning"
{tenants}
"""


@contextmanager
def server(scheduler: str) -> Iterator[str]:
    """Its URL."""
    tenants = "".join(
        f'[tenants.{name}]\nretention = "none"\n'
        f'keys = ["sha256:{hashlib.sha256(key.encode()).hexdigest()}"]\n'
        for name, key in KEYS.items()
    )
    with TemporaryDirectory() as folder:
        file = Path(folder) / "deployment.toml"
        file.write_text(
            DEPLOYMENT.format(slots=SLOTS, scheduler=scheduler, tenants=tenants), "utf-8"
        )
        process = subprocess.Popen(
            [sys.executable, "-m", "plancha_app", "serve", file], stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            line = next(line for line in process.stdout if " is served at " in line)
            yield line.split(" is served at ")[1].strip()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


async def first_tokens(url: str, backlog: int, requests: int) -> list[float]:
    """The light tenant's seconds to the first token."""
    job = Job(requests=1000, prompt_tokens="64", output_tokens="16,32,48,64")
    asks, found = workload(job), list[float]()
    async with session("flood") as flood, session("light") as light:
        async with anyio.create_task_group() as tasks:
            for number in range(SLOTS + backlog):
                tasks.start_soon(keep_asking, flood, url, asks[number:], job)
            await anyio.sleep(5)  # until the batch has settled
            randomness = Random(1)
            for asked in track(asks[:requests], f"backlog {backlog}", transient=True):
                await anyio.sleep(randomness.expovariate(1 / MEAN_GAP_S))
                outcome = await send(light, url, asked, job)
                assert outcome.ttft_s is not None
                found.append(outcome.ttft_s)
            tasks.cancel_scope.cancel()
    return found


def session(tenant: str) -> aiohttp.ClientSession:
    """Authenticated as that tenant."""
    return aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=None),
        connector=aiohttp.TCPConnector(limit=0),
        headers={
            "Content-Type": "application/json",
            "Authorization": f"Bearer {KEYS[tenant]}",
        },
    )


async def keep_asking(
    flood: aiohttp.ClientSession, url: str, asks: tuple[Ask, ...], job: Job
) -> None:
    """Task: one request after the other."""
    for number in count():
        await send(flood, url, asks[number % len(asks)], job)


async def send(session: aiohttp.ClientSession, url: str, asked: Ask, job: Job) -> Outcome:
    """Raises `RuntimeError` when it was not answered to its end."""
    outcome = await ask(session, f"{url}/v1", "smollm2", asked, job, time.perf_counter())
    if outcome.error is not None:
        raise RuntimeError(outcome.error)
    return outcome


def main(*, requests: int = 40) -> None:
    """Print the table. `requests` are the light tenant's, fewer where each waits long."""
    console = Console()
    if (load := os.getloadavg()[0]) > 1:
        console.print(f"The machine is busy (load {load:.1f}): take the figures with care.")
    runs = {
        "just fills the batch": ("fair-queue", 0),
        f"has {BACKLOG} waiting, fair-queue": ("fair-queue", BACKLOG),
        f"has {BACKLOG} waiting, fcfs": ("fcfs", BACKLOG),
    }
    table = Table("the other tenant", "p50", "p99", "p50 ratio", "p99 ratio")
    best = None
    for name, (scheduler, backlog) in runs.items():
        with server(scheduler) as url:
            asked = requests if scheduler == "fair-queue" else max(5, requests // 8)
            waits = anyio.run(first_tokens, url, backlog, asked)
        values = np.percentile(waits, [50, 99])
        best = values if best is None else best
        ratios = [f"{value:.2f}" for value in values / best]
        console.print(name, *ratios)  # what there is if the rest takes too long
        table.add_row(name, *(f"{value:.2f} s" for value in values), *ratios)
    console.print(table)


if __name__ == "__main__":
    cyclopts.run(main)
