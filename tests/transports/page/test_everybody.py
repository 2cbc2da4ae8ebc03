"""Without a mouse, on a small screen, without motion, with a screen reader."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson
import pytest

from browser import SHIFT, Tab
from plancha.testing.gate import GatedExecutor

READY = "document.querySelector('#state').textContent === 'Ready'"
FOCUSED = (
    "(document.activeElement.id || document.activeElement.value || document.activeElement.tagName)"
)
POOL = "document.querySelector('#pool-text').textContent"
OUTLINED = "getComputedStyle(document.activeElement).outlineStyle !== 'none'"


async def test_a_prompt_can_be_sent_and_stopped_by_keyboard_alone(
    tab: Tab, serve: Any, says: Any
) -> None:
    async with serve(says("Hi")) as server:
        await tab.open(server.url)
        await tab.until(READY)
        await tab.press("Tab")
        assert await tab.look(FOCUSED) == "skip"
        assert await tab.look("document.querySelector('#skip').getBoundingClientRect().top") >= 0
        await tab.press("Enter")
        await tab.until(f"{FOCUSED} === 'prompt'")
        await tab.press("Tab", SHIFT)  # back over the options
        await tab.press("Tab", SHIFT)
        await tab.until(f"{FOCUSED} === 'chat'")
        await tab.press("ArrowRight")
        assert await tab.look("document.querySelector('input[value=raw]').checked")
        await tab.press("Tab")
        await tab.press("Tab")
        await tab.type("x")
        await tab.press("Tab")
        await tab.press("Tab")
        assert await tab.look(FOCUSED) == "send"
        assert await tab.look(OUTLINED)
        await tab.press("Enter")
        await tab.until("document.querySelector('.turn .answer')?.textContent === 'Hi'")


async def test_the_focus_goes_everywhere_once_and_is_always_seen(
    tab: Tab, serve: Any, says: Any
) -> None:
    async with serve(says("Hi")) as server:
        await server.events("/generate", {"prompt": "x"})  # so that there is a tenant to choose
        await tab.open(server.url)
        await tab.until(f"{READY} && document.querySelector('.tenants button')")
        order: list[str] = []
        while (await tab.look("document.activeElement.tagName") != "BODY") or not order:
            await tab.press("Tab")
            where = await tab.look(FOCUSED)
            if where != "BODY":
                order.append(where)
                inner = "document.activeElement.nextElementSibling"
                seen = f"{OUTLINED} || getComputedStyle({inner}).outlineStyle !== 'none'"
                assert await tab.look(seen), f"nothing shows that {where} has the focus"
        assert [each for each in order if each != "live"] == [  # a pane that scrolls is a stop too
            *("skip", "key-button", "transcript", "model", "chat", "SUMMARY", "prompt"),
            *("new-conversation", "BUTTON"),
        ]


@pytest.mark.parametrize("view", ["playground", "live"])
async def test_a_phone_of_320_pixels_scrolls_in_one_direction(
    tab: Tab, serve: Any, emits: Any, view: str
) -> None:
    async with serve(emits(*b"unbroken" * 12, 257)) as server:
        await tab.resize(320, 640, phone=True)
        await tab.open(f"{server.url}/#{view}")
        await tab.until(READY)
        await tab.look(
            "document.querySelector('input[value=raw]').click();"
            "document.querySelector('.sampling').open = true;"
            "document.querySelector('#prompt').value = 'x'.repeat(100);"
            "document.querySelector('#prompt').dispatchEvent(new Event('input'));"
            "document.querySelector('#send').click()"
        )
        await tab.until("document.querySelector('.turn .answer')?.textContent.length === 96")
        if view == "live":
            await tab.until("document.querySelector('.tenants button')")
        wide = await tab.look(
            "[...document.querySelectorAll('body *')].filter((each) =>"
            " each.getClientRects().length && getComputedStyle(each).position !== 'absolute' &&"
            " each.getBoundingClientRect().right > 320.5)"
            ".map((each) => each.outerHTML.slice(0, 90))"
        )
        assert wide == []
        assert await tab.look("document.documentElement.scrollWidth") == 320


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
async def test_who_wants_no_motion_sees_none(tab: Tab, serve: Any, emits: Any, motion: str) -> None:
    """A block that was handed out glows, frame by frame, or is simply there."""
    gated = GatedExecutor(emits(65))
    async with serve(gated) as server:
        await tab.prefer(prefers_reduced_motion=motion)
        await tab.open(server.url)
        await tab.until(f"{POOL}.startsWith('0 of 64')")
        await tab.look(
            "window.frames_drawn = 0; const real = window.requestAnimationFrame;"
            "window.requestAnimationFrame = (draw) =>"
            " real((now) => { window.frames_drawn += 1; draw(now); })"
        )
        async with server.session.ws_connect(server.url + "/v1/stream") as socket:
            await socket.send_json({"type": "generate", "id": "1", "prompt": "x" * 60})
            await gated.started()
            await tab.until(f"{POOL}.startsWith('4 of 64')")
            if motion == "reduce":
                assert await tab.look("window.frames_drawn") == 0
            else:
                await tab.until("window.frames_drawn > 5")
        heat = "getComputedStyle(document.querySelector('#heat')).transitionDuration"
        assert await tab.look(heat) == ("0s" if motion == "reduce" else "0.5s")
        gated.open()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
async def test_axe_finds_nothing(tab: Tab, serve: Any, emits: Any, scheme: str, width: int) -> None:
    """The rules of WCAG 2.1 A and AA, contrast too, with an answer, a failure and a flood seen."""
    spec = find_spec("axe_core_python")
    assert spec is not None and spec.origin is not None
    axe = (Path(spec.origin).parent / "axe.min.js").read_text()
    async with serve(emits(*b"AB", 257, failing=frozenset({(1, 1)}))) as server:
        await tab.prefer(prefers_color_scheme=scheme)
        await tab.resize(width, 900)
        await tab.open(server.url)
        await tab.until(READY)
        await tab.look("document.querySelector('input[value=raw]').click()")
        for turn in (1, 2):
            await tab.look("document.querySelector('#prompt').focus()")
            await tab.type("x")
            await tab.look("document.querySelector('#send').click()")
            ended = "document.querySelectorAll('.turn:not([data-running])').length"
            await tab.until(f"{ended} === {turn}")
        await tab.look(axe + ";0")
        for view in ("playground", "live") if width < 1000 else ("playground",):
            await tab.look(f"location.hash = {view!r}")
            await tab.until("document.querySelector('.tenants button') || innerWidth < 1000")
            await violations(tab)
        await tab.look("document.querySelector('#key-button').click()")
        await violations(tab)


async def violations(tab: Tab) -> None:
    found = await tab.look(
        "axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice']})"
        ".then(({violations}) => JSON.stringify(violations.map(({id, nodes}) =>"
        " [id, ...nodes.map((node) => node.html.slice(0, 120) + node.failureSummary)])))"
    )
    assert orjson.loads(found) == []
