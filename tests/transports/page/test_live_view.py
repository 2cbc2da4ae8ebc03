"""The live view, against what the worker really does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs

from browser import Tab
from plancha.access import Access, key_hash
from plancha.testing.gate import GatedExecutor

A, B, ROOT = "sk-test-a", "sk-test-b", "sk-test-root"
ACCESS = Access(
    keys={key_hash(key.encode()): name for key, name in ((A, "acme"), (B, "beta"), (ROOT, "root"))},
    anonymous=None,
    operators=frozenset({"root"}),
)

POOL = "document.querySelector('#pool-text').textContent"
PIXELS = "document.querySelector('#pool').toDataURL()"
PRESSED = "document.querySelector('.tenants button').getAttribute('aria-pressed') === 'true'"


@asynccontextmanager
async def asking(server: Any, prompt: str, *keys: str) -> AsyncIterator[None]:
    """Each of these keys has a request, and reads it."""
    async with server.session.ws_connect(
        server.url + "/v1/stream", headers={"Authorization": f"Bearer {keys[0]}"}
    ) as socket:
        await socket.send_json({"type": "generate", "id": "1", "prompt": prompt})
        await socket.receive_json()
        if len(keys) == 1:
            yield
        else:
            async with asking(server, prompt, *keys[1:]):
                yield


async def open_as(tab: Tab, server: Any, key: str) -> None:
    await tab.open(server.url)
    await tab.look(f"sessionStorage.setItem('plancha.key', {key!r})")
    await tab.open(server.url + "/?again")
    await tab.until(f"{POOL} !== 'No figures yet.'")
    tab.complaints.clear()  # the first time there was no key


async def cells(tab: Tab, selector: str = ".tenants tbody tr") -> list[list[str]]:
    rows = f"[...document.querySelectorAll({selector!r})]"
    found = await tab.look(f"{rows}.map((row) => [...row.cells].map((cell) => cell.innerText))")
    return [[text.strip() for text in row] for row in found]


async def test_pool_batch_and_tenants_are_shown_as_they_are(
    tab: Tab, serve: Any, emits: Any
) -> None:
    gated = GatedExecutor(emits(65))
    async with serve(gated) as server:
        server.gateway.access = ACCESS
        await open_as(tab, server, ROOT)
        assert await tab.look(POOL) == (
            "0 of 64 blocks held · 0 cached · 64 free · 0 % of what is held is waste · "
            "16 tokens a block"
        )
        empty = await tab.look(PIXELS)
        async with asking(server, "x" * 20, A, B, B):
            await gated.run(3)
            await gated.started()
            await tab.until(f"{POOL}.startsWith('6 of 64 blocks held')")
            assert await tab.look(PIXELS) != empty
            rows = await cells(tab)
            assert [row[:4] for row in rows] == [["acme", "2", "1", "0"], ["beta", "4", "2", "0"]]
            assert await tab.look("document.querySelectorAll('#batch li').length") == 3
            assert "decode 3 of 236" in await tab.text("#batch li:first-child")
            assert "3 of 8 slots" in await tab.text("#batch-text")
            gated.open()
            await tab.until(f"!{POOL}.startsWith('6 of 64 blocks held')")


async def test_one_tenant_can_be_looked_at_alone(tab: Tab, serve: Any, emits: Any) -> None:
    gated = GatedExecutor(emits(65))
    async with serve(gated) as server:
        server.gateway.access = ACCESS
        await open_as(tab, server, ROOT)
        async with asking(server, "x" * 20, A, B, B):
            await gated.run(3)
            await gated.started()
            await tab.until("document.querySelectorAll('#batch li').length === 3")
            all_of_them = await tab.look(PIXELS)
            await tab.click(".tenants button")
            await tab.until(f"{PRESSED} && document.querySelectorAll('#batch li').length === 1")
            assert await tab.text("#batch li b") == "acme"
            assert await tab.look(PIXELS) != all_of_them
            await tab.click(".tenants button")
            await tab.until("document.querySelectorAll('#batch li').length === 3")
            gated.open()


async def test_a_tenant_sees_its_own_and_no_name_of_anothers(
    tab: Tab, serve: Any, emits: Any
) -> None:
    gated = GatedExecutor(emits(65))
    async with serve(gated) as server:
        server.gateway.access = ACCESS
        await open_as(tab, server, A)
        async with asking(server, "x" * 20, A, B, B):
            await gated.run(3)
            await gated.started()
            await tab.until(f"{POOL}.startsWith('2 blocks of 64 are yours')")
            assert "about 10 % full" in await tab.look(POOL)  # 6 of 64, to a twentieth
            assert [row[:3] for row in await cells(tab)] == [["acme", "2", "1"]]
            assert await tab.look("document.querySelectorAll('#batch li').length") == 1
            assert "beta" not in await tab.look("document.documentElement.outerHTML")
            gated.open()


async def test_while_tokens_flow_the_figures_move(tab: Tab, serve: Any, emits: Any) -> None:
    async with serve(emits(65)) as server:
        await tab.open(server.url)
        await tab.until(f"{POOL} !== 'No figures yet.'")
        async with server.session.ws_connect(server.url + "/v1/stream") as socket:
            for number in range(40):
                await socket.send_json({"type": "generate", "id": str(number), "prompt": "x"})
            ended = 0
            while ended < 40:
                ended += (await socket.receive_json())["type"] == "done"
        await tab.until(
            "[...document.querySelectorAll('.plot .now')].every((now) => parseFloat(now.innerText))"
        )
        labels = await tab.look(
            "[...document.querySelectorAll('.plot svg')].map((each) => each.ariaLabel)"
        )
        assert [label.partition(",")[0] for label in labels] == [
            "Tokens/s",
            "First token",
            "Next token",
        ]
        line = "document.querySelector('.plot path:last-child')"
        assert await tab.look(f"{line}.getTotalLength()") > 0


async def test_nothing_is_asked_for_while_nobody_looks(tab: Tab, serve: Any, says: Any) -> None:
    asked = (
        "performance.getEntriesByType('resource').filter((e) => e.name.endsWith('/live')).length"
    )
    async with serve(says("Hi")) as server:
        await tab.resize(390, 800)
        await tab.open(server.url)
        await tab.until("document.querySelector('#state').textContent === 'Ready'")
        assert await tab.look(asked) == 0  # the playground is in front
        await tab.look("location.hash = 'live'")
        await tab.until(f"{asked} >= 2")
        await tab.look(
            "Object.defineProperty(document, 'hidden', {get: () => true, configurable: true});"
            "document.dispatchEvent(new Event('visibilitychange'))"
        )
        while_hidden = await tab.look(
            f"new Promise((done) => setTimeout(() => {{ const before = {asked};"
            f" setTimeout(() => done({asked} - before), 1500); }}, 700))"
        )
        assert while_hidden == 0
        await tab.look(
            "delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))"
        )
        before = await tab.look(asked)
        await tab.until(f"{asked} > {before}")


async def test_a_key_that_is_forgotten_takes_its_figures_with_it(
    tab: Tab, serve: Any, emits: Any
) -> None:
    gated = GatedExecutor(emits(65))
    async with serve(gated) as server:
        server.gateway.access = ACCESS
        async with asking(server, "x" * 20, A):
            await gated.run(1)
            await open_as(tab, server, ROOT)
            await tab.until("document.querySelector('#tenants').textContent.includes('acme')")
            await tab.click("#key-button")
            await tab.click("#key-forget")
            await tab.until("document.querySelector('#state').textContent === 'Needs an API key'")
            assert "acme" not in await tab.look("document.querySelector('#live').textContent")
            assert await tab.look(POOL) == "No figures yet."
            assert await tab.look("document.querySelector('#pool').width") == 0
        gated.open()
        tab.complaints.clear()


async def test_who_may_watch_and_ask_for_nothing_sees_plots_grow(
    tab: Tab, serve: Any, says: Any
) -> None:
    async with serve(says("Hi")) as server:
        server.gateway.access = attrs.evolve(ACCESS, models={"root": ()})
        await open_as(tab, server, ROOT)
        await tab.until("document.querySelector('#state').textContent.includes('no model')")
        line = "(document.querySelector('.plot path:not(.worst)').getAttribute('d') ?? '')"
        await tab.until(f"{line}.split('L').length > 8")  # half a second each: for over 2 seconds
