"""A real browser on a page of its own: what it lets a page do is not ours to simulate."""

import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest
from aiohttp import web

from plancha.access import Access

KEY = "sk-test-a"
HANG_S = 120.0

PAGE = """<!doctype html><script type="module">
const server = "SERVER", key = "sk-test-a";
const said = {};
const encoded = btoa(key).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

async function streamed() {
  const answer = await fetch(server + "/v1/completions", {
    method: "POST",
    headers: {"Content-Type": "application/json", "Authorization": "Bearer " + key},
    body: JSON.stringify({prompt: "x", stream: true}),
  });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return {status: answer.status, id: answer.headers.get("X-Request-Id"), text};
    text += value;
  }
}

function socketed() {
  return new Promise((resolve) => {
    const url = server.replace("http", "ws") + "/v1/stream";
    const socket = new WebSocket(url, ["plancha", "key." + encoded]);
    const types = [];
    socket.onopen = () => socket.send(JSON.stringify({type: "generate", id: "1", prompt: "x"}));
    socket.onmessage = (event) => {
      types.push(JSON.parse(event.data).type);
      if (["done", "error"].includes(types.at(-1))) socket.close(1000);
    };
    socket.onclose = () => resolve({protocol: socket.protocol, types});
  });
}

for (const [name, act] of Object.entries({streamed, socketed})) {
  try { said[name] = await act(); } catch (error) { said[name] = {refused: error.name}; }
}
await fetch("/said", {method: "POST", body: JSON.stringify(said)});
</script>"""


@attrs.define
class Page:
    """A web page at an address of its own, and what its script says of what it could do."""

    origin: str
    server: str = ""
    said: Any = None
    heard: anyio.Event = attrs.field(factory=anyio.Event)


@asynccontextmanager
async def page_server() -> AsyncIterator[Page]:
    page = Page("")

    async def show(request: web.Request) -> web.Response:
        return web.Response(text=PAGE.replace("SERVER", page.server), content_type="text/html")

    async def hear(request: web.Request) -> web.Response:
        page.said = await request.json()
        page.heard.set()
        return web.Response()

    app = web.Application()
    app.add_routes([web.get("/", show), web.post("/said", hear)])
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        page.origin = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield page
    finally:
        await runner.cleanup()


async def look(browser: str, profile: Path, page: Page) -> Any:
    """What the page says once a headless browser has been there."""
    command = [
        browser,
        "--headless=new",
        "--no-sandbox",  # root, as in a container, has none
        "--disable-gpu",
        "--disable-dev-shm-usage",
        f"--user-data-dir={profile}",
        "--remote-debugging-port=0",  # stay until killed
        page.origin,
    ]
    async with await anyio.open_process(command, stdout=None, stderr=None) as process:
        try:
            with anyio.fail_after(HANG_S):
                await page.heard.wait()
        finally:
            process.terminate()
    return page.said


def with_key() -> Access:
    digest = "sha256:" + hashlib.sha256(KEY.encode()).hexdigest()
    return Access(keys={digest: "a"}, anonymous=None)


@pytest.fixture
def browser(program: Callable[[str], str]) -> str:
    return program("chromium")


async def test_a_named_page_streams_by_both_ways(
    serve: Any, says: Any, browser: str, tmp_path: Path
) -> None:
    async with page_server() as page, serve(says("Hi"), allowed_origins=[page.origin]) as server:
        server.gateway.access = with_key()
        page.server = server.url
        said = await look(browser, tmp_path, page)
    assert said["streamed"]["status"] == 200
    assert said["streamed"]["id"].startswith("req-")
    assert said["streamed"]["text"].endswith("data: [DONE]\n\n")
    assert said["socketed"]["protocol"] == "plancha"
    assert said["socketed"]["types"] == ["queued", "token", "token", "token", "done"]


async def test_any_other_page_can_do_nothing(
    serve: Any, says: Any, browser: str, tmp_path: Path
) -> None:
    async with page_server() as page, serve(says("Hi")) as server:
        server.gateway.access = with_key()
        page.server = server.url
        said = await look(browser, tmp_path, page)
        assert not server.gateway._records
    assert said["streamed"] == {"refused": "TypeError"}  # what fetch raises for all it hides
    assert said["socketed"]["types"] == []
