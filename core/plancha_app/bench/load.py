"""Drives a workload against a server: so many at a time, or each when it is due."""

import time
from collections.abc import Callable, Iterator

import aiohttp
from anyio import create_task_group, sleep

from plancha_app.bench.client import Outcome, ask
from plancha_app.bench.job import Job
from plancha_app.bench.workload import Ask, WorkloadError

HEADERS = {"Content-Type": "application/json"}


class ServerError(Exception):
    """A server that cannot be asked at all."""


async def drive(
    url: str, job: Job, asks: tuple[Ask, ...], ended: Callable[[Outcome], None]
) -> list[Outcome]:
    """Send every request; `ended` hears of each outcome as it comes. In the order of the asks.

    Raises `ServerError` when the server does not answer, and `WorkloadError` for a key that cannot
    be read.
    """
    outcomes: list[Outcome] = []
    timeout = aiohttp.ClientTimeout(total=None, sock_read=job.timeout_s, sock_connect=30)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(
        timeout=timeout, connector=connector, headers={**HEADERS, **_key(job)}
    ) as session:
        model = job.model or await _first_model(session, url)
        began = time.perf_counter()

        async def one(asked: Ask) -> None:
            if asked.due_s is not None:
                await sleep(max(0.0, asked.due_s - (time.perf_counter() - began)))
            outcome = await ask(session, url, model, asked, job, began)
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


def _key(job: Job) -> dict[str, str]:
    if job.key_file is None:
        return {}
    try:
        return {"Authorization": f"Bearer {job.key_file.read_text('utf-8').strip()}"}
    except (OSError, UnicodeDecodeError) as error:
        raise WorkloadError(f"--key-file {job.key_file} cannot be read: {error}") from None


async def _first_model(session: aiohttp.ClientSession, url: str) -> str:
    try:
        async with session.get(f"{url}/v1/models") as response:
            if response.status == 401:
                raise ServerError(f"{url} wants a key; give one with --key-file")
            models = (await response.json())["data"]
            return str(models[0]["id"])
    except (TimeoutError, aiohttp.ClientError) as error:
        raise ServerError(f"{url} does not answer: {error}") from None
    except (KeyError, IndexError, TypeError, ValueError):
        raise ServerError(f"{url} lists no model in /v1/models; name one with --model") from None
