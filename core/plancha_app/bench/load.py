"""Drives a workload against a server: so many at a time, or each when it is due."""

import time
from collections.abc import Callable, Iterator

import aiohttp
from anyio import create_task_group, sleep

from plancha_app.bench.client import Outcome, ask
from plancha_app.bench.job import Job
from plancha_app.bench.workload import Ask
from plancha_app.remote.address import Address
from plancha_app.remote.api_key import headers as key
from plancha_app.remote.session import Remote

HEADERS = {"Content-Type": "application/json"}


async def drive(
    url: str, job: Job, asks: tuple[Ask, ...], ended: Callable[[Outcome], None]
) -> list[Outcome]:
    """Send every request; `ended` hears of each outcome as it comes. In the order of the asks.

    Raises `ServerError` when the server does not answer, and `Mistake` for an address or a key that
    is none.
    """
    address = Address.parse(url)
    outcomes: list[Outcome] = []
    timeout = aiohttp.ClientTimeout(total=None, sock_read=job.timeout_s, sock_connect=30)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(
        timeout=timeout, connector=connector, headers={**HEADERS, **key(job.key_file)}
    ) as session:
        model = job.model or (await Remote(address, session).models())[0]
        began = time.perf_counter()

        async def one(asked: Ask) -> None:
            if asked.due_s is not None:
                await sleep(max(0.0, asked.due_s - (time.perf_counter() - began)))
            outcome = await ask(session, address.api, model, asked, job, began)
            outcomes.append(outcome)
            ended(outcome)

        async def worker(remaining: Iterator[Ask]) -> None:
            for asked in remaining:
                await one(asked)

        async with create_task_group() as tasks:
            if asks[0].due_s is None:
                remaining = iter(asks)
                for _ in range(job.concurrency):
                    tasks.start_soon(worker, remaining)
            else:
                for asked in asks:
                    tasks.start_soon(one, asked)
    return sorted(outcomes, key=lambda outcome: outcome.ask.number)
