"""Pictures of the web page: `python tests/harness/page_pictures.py FOLDER`.

Light and dark, wide and narrow, with nothing to do and in a flood of four tenants.
"""

import itertools
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import anyio
import attrs

from browser import Tab, chromium, tab_of
from plancha.access import Access, key_hash
from plancha.contracts import Geometry, Tenant
from plancha.options import structure
from plancha.plans import Plan, StepDone
from plancha.testing.embedded import Limits, embedded
from plancha.testing.executors import ScriptExecutor
from plancha_schedulers.fair_queue import fair_queue
from plancha_text.byte_text import byte_text
from plancha_transports.http import HttpTransport
from plancha_transports.options import HttpOptions

EOS = 257
GEOMETRY = Geometry(blocks=2048, context_length=2048, vocabulary=264, stop_ids=(EOS,))
TENANTS = {"atelier": 3.0, "bistro": 2.0, "carnet": 1.0, "default": 1.0}
ANSWER = (
    "A plancha is a thick, flat plate of steel over a fire. Heat spreads in it evenly, so a cook "
    "can lay many things side by side and give each the time that it needs, with no pan to wait "
    "for.\n\nA KV cache is used in much the same way here: every request takes the squares it "
    "needs, and gives them back when it is done."
)
SIZES = {"wide": (1440, 900), "narrow": (390, 844)}


@attrs.define(eq=False)
class PacedExecutor(ScriptExecutor):
    """Takes about as long for a step as a small GPU does."""

    def step(self, plan: Plan) -> StepDone:
        time.sleep(0.012 + 0.00002 * int(plan.counts.sum()))
        return super().step(plan)


def said(prompt: tuple[int, ...]) -> list[int]:
    return [*ANSWER.encode(), EOS] if len(prompt) < 200 else [65]


@asynccontextmanager
async def serving() -> AsyncIterator[str]:
    limits = Limits(
        max_sequences=32,
        max_batched_tokens=512,
        max_waiting=400,
        tenants={name: Tenant(weight=weight) for name, weight in TENANTS.items()},
    )
    executor = PacedExecutor(said, GEOMETRY)
    scheduler = lambda site: fair_queue({}, site)  # noqa: E731
    transport = HttpTransport(structure({"port": 0}, HttpOptions, ""))
    addresses: list[str] = []
    async with (
        embedded(
            executor, byte_text(), limits=limits, scheduler=scheduler, model="smollm2"
        ) as kernel,
        anyio.create_task_group() as tasks,
    ):
        kernel.gateway.access = Access(
            keys={key_hash(name.encode()): name for name in TENANTS},
            anonymous="default",
            operators=frozenset({"default"}),
        )
        tasks.start_soon(transport.run, kernel.gateway, addresses.append)
        while not addresses:  # noqa: ASYNC110
            await anyio.sleep(0.01)
        yield addresses[0]
        tasks.cancel_scope.cancel()


async def flood(url: str) -> None:
    """For ever: each tenant sends what it has of prompts, the last of them more than fits."""

    async def client(tenant: str, number: int) -> None:
        headers = {"Authorization": f"Bearer {tenant}"}
        for turn in itertools.count():
            size = 240 + (number * 137 + turn * 211) % 700
            body = {
                "prompt": (f"{tenant} {number % 3} " * 200)[:size],
                "max_tokens": 60 + (number * 53 + turn * 97) % 400,
            }
            async with session.post(url + "/v1/completions", json=body, headers=headers) as answer:
                await answer.read()

    connector = aiohttp.TCPConnector(limit=0)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        anyio.create_task_group() as tasks,
    ):
        for tenant, clients in (("atelier", 14), ("bistro", 26), ("carnet", 9)):
            for number in range(clients):
                tasks.start_soon(client, tenant, number)
                await anyio.sleep(0.03)


async def shoot(tab: Tab, folder: Path, what: str) -> None:
    for scheme in ("light", "dark"):
        await tab.prefer(prefers_color_scheme=scheme)
        for size, (width, height) in SIZES.items():
            await tab.resize(width, height, scale=1 if size == "wide" else 2, phone=size != "wide")
            views = ("playground",) if size == "wide" else ("playground", "live")
            for view in views:
                await tab.look(f"location.hash = {view!r}")
                await anyio.sleep(1.2)
                name = f"{what}-{scheme}-{size}" + (f"-{view}" if size == "narrow" else "")
                (folder / f"{name}.png").write_bytes(await tab.picture())


async def ask(tab: Tab, prompt: str) -> None:
    await tab.look("document.querySelector('#prompt').focus()")
    await tab.type(prompt)
    await tab.look("document.querySelector('#send').click()")


async def take(folder: Path, address: str) -> None:
    async with serving() as url, tab_of(address) as tab:
        await tab.resize(*SIZES["wide"])
        await tab.open(url)
        await tab.until("!document.querySelector('#model').disabled")
        await shoot(tab, folder, "empty")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(flood, url)
            await tab.resize(*SIZES["wide"])
            await tab.look("document.querySelector('input[value=raw]').click()")
            await anyio.sleep(20)
            await ask(tab, "What is a plancha?")
            await anyio.sleep(16)
            await shoot(tab, folder, "busy")
            tasks.cancel_scope.cancel()
        if tab.complaints:
            print(*tab.complaints, sep="\n", file=sys.stderr)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    program = shutil.which("chromium")
    if program is None:
        raise SystemExit("chromium is not installed")
    with tempfile.TemporaryDirectory() as profile, chromium(program, Path(profile)) as address:
        anyio.run(take, folder, address)


if __name__ == "__main__":
    main()
