"""The page where a key is needed."""

from typing import Any

from browser import Tab
from plancha.access import Access, key_hash

KEY = "sk-test-ü"  # as any bytes may be one
ACCESS = Access(keys={key_hash(KEY.encode()): "acme"}, anonymous=None)
DIALOG = "document.querySelector('#key-dialog').open"
READY = "document.querySelector('#state').textContent === 'Ready'"


async def give(tab: Tab, key: str) -> None:
    await tab.until(DIALOG)
    await tab.type(key)  # the field has the focus
    await tab.press("Enter")


async def test_a_key_is_asked_for_tried_and_used_for_everything(
    tab: Tab, serve: Any, says: Any
) -> None:
    async with serve(says("Hi")) as server:
        server.gateway.access = ACCESS
        await tab.open(server.url)
        await give(tab, "sk-wrong")
        await tab.until("document.querySelector('#key-wrong').textContent.includes('not know')")
        assert await tab.look("document.querySelector('#key').value") == ""
        await give(tab, KEY)
        await tab.until(READY)
        assert not await tab.look(DIALOG)
        await tab.look("document.querySelector('input[value=raw]').click()")
        await tab.look("document.querySelector('#prompt').focus()")
        await tab.type("x")
        await tab.look("document.querySelector('#send').click()")
        await tab.until("document.querySelector('.turn .answer')?.textContent === 'Hi'")
        await tab.until("document.querySelector('#pool-text').textContent.includes('are yours')")
        (record,) = server.gateway._records.values()
        assert record.tenant == "acme"
        refused = [each for each in tab.complaints if " 401 " in each]
        assert len(refused) == 2  # without a key, and with the wrong one: what the browser notes
        assert refused == tab.complaints
        tab.complaints.clear()


async def test_the_key_is_in_no_address_and_gone_with_the_tab(
    tab: Tab, serve: Any, says: Any
) -> None:
    async with serve(says("Hi")) as server:
        server.gateway.access = ACCESS
        await tab.open(server.url)
        await give(tab, KEY)
        await tab.until(READY)
        addresses = await tab.look(
            "[location.href, ...performance.getEntries().map((entry) => entry.name)].join(' ')"
        )
        assert "v1/models" in addresses
        assert "sk-" not in addresses and "?" not in addresses
        assert await tab.look("localStorage.length") == 0
        assert await tab.look("document.cookie") == ""
        assert await tab.look("sessionStorage.getItem('plancha.key')") == KEY
        await tab.click("#key-button")
        await tab.until(DIALOG)
        await tab.click("#key-forget")
        await tab.until("document.querySelector('#state').textContent === 'Needs an API key'")
        assert await tab.look("sessionStorage.length") == 0
        tab.complaints.clear()


async def test_a_key_that_is_withdrawn_is_asked_for_again(tab: Tab, serve: Any, says: Any) -> None:
    async with serve(says("Hi")) as server:
        server.gateway.access = ACCESS
        await tab.open(server.url)
        await give(tab, KEY)
        await tab.until(READY)
        server.gateway.access = Access(keys={key_hash(b"another"): "acme"}, anonymous=None)
        await tab.look("document.querySelector('input[value=raw]').click()")
        await tab.look("document.querySelector('#prompt').focus()")
        await tab.type("x")
        await tab.look("document.querySelector('#send').click()")
        await tab.until("document.querySelector('.turn .failed strong')")
        assert "Enter a key" in await tab.text(".turn .failed")
        tab.complaints.clear()


async def test_while_the_model_loads_the_page_says_so_and_waits(
    tab: Tab, listen: Any, serve: Any, says: Any
) -> None:
    async with serve(says("Hi")) as server:
        gateway = server.gateway
        gateway.state, gateway.reason = "loading", "loading weights"
        await tab.open(server.url)
        await tab.until(
            "document.querySelector('#state').textContent.startsWith('Not ready: loading weights')"
        )
        assert await tab.look("document.querySelector('#send').disabled")
        gateway.state = "ready"
        await tab.until(READY)
        tab.complaints.clear()
