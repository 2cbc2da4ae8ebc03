"""Several gateways keep texts in one file, and any of them shows what any of them kept."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import anyio

from plancha.access import key_hash
from server_clients import client_of, complete
from server_processes import HANG_S, started

TENANT = f"""
[texts]
path = "texts.db"
[tenants.acme]
keys = ["{key_hash(b"sk-acme")}"]
retention = RETENTION
"""


async def shows(client: aiohttp.ClientSession, request: str, holds: Callable[[Any], bool]) -> Any:
    """What is kept of the request, once it is as it is to be."""
    with anyio.fail_after(HANG_S):
        while True:
            async with client.get(f"/v1/requests/{request}/text") as response:
                shown = await response.json()
            if holds(shown):
                return shown
            await anyio.sleep(0.01)


def on_disk(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.glob("texts.db*"))


async def test_any_gateway_shows_and_deletes_what_any_gateway_kept(tmp_path: Path) -> None:
    with started(tmp_path, more=TENANT.replace("RETENTION", "30")) as server:
        await server.ready()
        server.key = "sk-acme"
        one, other = server.gateways().values()
        async with client_of(server, one) as first, client_of(server, other) as second:
            requests = [(await complete(client, 3))["id"] for client in (first, second, first)]
            for request in requests:
                for client in (first, second):
                    shown = await shows(client, request, lambda shown: "outputs" in shown)
                    assert (shown["prompts"], shown["outputs"]) == (["x"], ["abc"])
            async with second.delete(f"/v1/requests/{requests[0]}/text") as response:
                assert response.status == 200
            gone = await shows(first, requests[0], lambda shown: "error" in shown)
            assert gone["error"]["code"] == "text_not_kept"
            assert b'"abc"' in on_disk(tmp_path)

            text = server.file.read_text()
            server.file.write_text(text.replace("retention = 30", 'retention = "none"'))
            server.process.send_signal(signal.SIGHUP)
            for client in (first, second):
                gone = await shows(client, requests[1], lambda shown: "error" in shown)
                assert gone["error"]["code"] == "text_not_kept"
            await server.until(lambda: b'"abc"' not in on_disk(tmp_path))
            new = (await complete(first, 3))["id"]
            gone = await shows(second, new, lambda shown: "error" in shown)
            assert gone["error"]["code"] == "text_not_kept"
            assert b'"abc"' not in on_disk(tmp_path)


async def test_a_file_that_cannot_be_used_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "texts.db").touch(0o644)
    with started(tmp_path, more=TENANT.replace("RETENTION", "30")) as server:
        await server.until(lambda: server.process.poll() is not None)

        assert server.process.returncode == 1
        await server.until(lambda: "chmod 600" in "".join(server.said))
