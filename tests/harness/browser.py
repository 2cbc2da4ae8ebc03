"""A real headless Chromium, driven by the DevTools protocol."""

import base64
import itertools
import os
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import attrs
import orjson

HANG_S = 30.0
KEYS = {
    "Enter": ("Enter", 13, "\r"),
    "Escape": ("Escape", 27, ""),
    "Tab": ("Tab", 9, ""),
    "Space": ("Space", 32, " "),
    "ArrowRight": ("ArrowRight", 39, ""),
}
CTRL, SHIFT = 2, 8


@contextmanager
def chromium(program: str, profile: Path) -> Iterator[str]:
    """A browser for as long as the block; its DevTools address."""
    command = [
        program,
        "--headless=new",
        "--no-sandbox",  # root, as in a container, has none
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-extensions",
        "--no-first-run",
        "--hide-scrollbars",
        "--force-color-profile=srgb",
        f"--user-data-dir={profile}",
        "--remote-debugging-port=0",
    ]
    quiet, environment = subprocess.DEVNULL, {**os.environ, "LC_ALL": "C.UTF-8"}
    with subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet) as process:
        try:
            yield _address(profile / "DevToolsActivePort")
        finally:
            process.terminate()


def _address(told: Path) -> str:
    """As soon as the browser has written it whole."""
    until = time.monotonic() + HANG_S
    while time.monotonic() < until:
        lines = told.read_text().splitlines() if told.exists() else []
        if len(lines) == 2:
            return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
        time.sleep(0.02)
    raise TimeoutError("the browser did not start")


class DevTools:
    """One connection: numbered commands, and events by session."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, dict[str, Any]] = {}
        self._news = anyio.Event()
        self.tabs: dict[str, Tab] = {}

    async def listen(self) -> None:
        """Task: until the socket closes."""
        async for message in self._socket:
            said = orjson.loads(message.data)
            if "id" in said:
                self._answers[said["id"]] = said
                self._news.set()
                self._news = anyio.Event()
            elif said.get("sessionId") in self.tabs:
                self.tabs[said["sessionId"]].hear(said["method"], said["params"])

    async def call(self, method: str, session: str | None = None, **params: Any) -> Any:
        """The command's result. Raises `AssertionError` with the browser's own words."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        await self._socket.send_str(orjson.dumps(message).decode())
        with anyio.fail_after(HANG_S):
            while number not in self._answers:
                await self._news.wait()
        answer = self._answers.pop(number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]


@attrs.define(eq=False)
class Tab:
    """A page. `complaints` are what a developer would see in red."""

    devtools: DevTools
    session: str
    complaints: list[str] = attrs.field(factory=list)

    def hear(self, method: str, params: Any) -> None:
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.complaints.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    async def call(self, method: str, **params: Any) -> Any:
        return await self.devtools.call(method, self.session, **params)

    async def open(self, url: str) -> None:
        """Go there; it has loaded, with its modules, when this returns."""
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    async def look(self, expression: str) -> Any:
        """What an expression, or the promise it is, comes to."""
        found = await self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait for what is about to be true; the hang guard is no expectation."""
        with anyio.move_on_after(HANG_S):
            while not await self.look(f"Boolean({expression})"):  # noqa: ASYNC110
                await anyio.sleep(0.02)
            return
        shown = await self.look("document.body.innerText")
        raise AssertionError(f"never true: {expression}; shown: {shown}; {self.complaints}")

    async def text(self, selector: str) -> str:
        """What is to be read there."""
        found = await self.look(f"document.querySelector({selector!r}).innerText")
        return str(found)

    async def type(self, text: str) -> None:
        """Into whatever has the focus."""
        await self.call("Input.insertText", text=text)

    async def press(self, key: str, modifiers: int = 0) -> None:
        code, number, text = KEYS[key]
        event = {"code": code, "key": code if key != "Space" else " ", "modifiers": modifiers}
        event["windowsVirtualKeyCode"] = number
        typed = {"text": text} if text and not modifiers else {}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **event, **typed)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    async def click(self, selector: str) -> None:
        """With the mouse, where the element is."""
        at = await self.look(
            f"(() => {{ const e = document.querySelector({selector!r});"
            " e.scrollIntoView({block: 'nearest'}); const r = e.getBoundingClientRect();"
            " return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        point = {"x": at[0], "y": at[1], "button": "left", "clickCount": 1}
        await self.call("Input.dispatchMouseEvent", type="mousePressed", **point)
        await self.call("Input.dispatchMouseEvent", type="mouseReleased", **point)

    async def resize(
        self, width: int, height: int, *, scale: float = 1, phone: bool = False
    ) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=phone,
        )

    async def prefer(self, **features: str) -> None:
        """`prefer(prefers_color_scheme="dark")`"""
        named = [{"name": k.replace("_", "-"), "value": v} for k, v in features.items()]
        await self.call("Emulation.setEmulatedMedia", features=named)

    async def picture(self) -> bytes:
        """What is to be seen, as PNG."""
        shot = await self.call("Page.captureScreenshot", format="png")
        return base64.b64decode(shot["data"])


@asynccontextmanager
async def tab_of(address: str) -> AsyncIterator[Tab]:
    """A new page that shares nothing with any other, in a browser that is there already."""
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(address, max_msg_size=0) as socket,
        anyio.create_task_group() as tasks,
    ):
        devtools = DevTools(socket)
        tasks.start_soon(devtools.listen)
        context = await devtools.call("Target.createBrowserContext")
        target = await devtools.call(
            "Target.createTarget", url="about:blank", browserContextId=context["browserContextId"]
        )
        attached = await devtools.call(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )
        tab = devtools.tabs[attached["sessionId"]] = Tab(devtools, attached["sessionId"])
        for domain in ("Page", "Runtime", "Log"):
            await tab.call(f"{domain}.enable")
        await tab.resize(1280, 800)
        try:
            yield tab
        finally:
            with anyio.CancelScope(shield=True):
                await devtools.call("Target.disposeBrowserContext", **context)
            tasks.cancel_scope.cancel()
