"""A server's parent, worker and gateways as real processes, a scripted executor for a model."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import attrs

import told_plugins
from plancha_text.byte_text import byte_tokenizer

HANG_S = 60.0


@attrs.define(eq=False)
class Server:
    """`plancha serve` with gateways, and what its processes have told."""

    process: subprocess.Popen[str]
    file: Path
    said: list[str] = attrs.field(factory=list)
    lines: list[dict[str, Any]] = attrs.field(factory=list)  # of the logs, whoever wrote them
    key: str | None = None  # of the clients to come

    async def until(self, holds: Callable[[], Any]) -> Any:
        """Wait for something that is about to hold; the hang guard is no expectation."""
        with anyio.fail_after(HANG_S):
            while not (found := holds()):  # noqa: ASYNC110
                await anyio.sleep(0.01)
        return found

    def told(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        return [
            line
            for line in list(self.lines)
            if line.get("event") == event and fields.items() <= line.items()
        ]

    async def ready(self) -> None:
        """Until both gateways serve, and have said so."""
        await self.until(lambda: self.said and len(self.gateways()) == 2)

    @property
    def url(self) -> str:
        return self.said[0].rpartition(" ")[2]

    def pid(self, which: str) -> int:
        """Of the process that has this place now."""
        return int(self.told("process_started", which=which)[-1]["pid"])

    def pids(self) -> list[int]:
        return [int(line["pid"]) for line in self.told("process_started")]

    def gateways(self) -> dict[str, str]:
        """Names in request ids, by the place that each gateway has now."""
        return {line["process"]: line["gateway"] for line in self.told("worker_found")}


@contextmanager
def started(folder: Path, **changes: Any) -> Iterator[Server]:
    """A server whose gateways may still be starting; killed at the end, if it still runs."""
    site, model = folder / "site", folder / "tiny"
    info = site / "told_plugins-1.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    shutil.copy(told_plugins.__file__, site)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: told-plugins\nVersion: 1\n")
    (info / "entry_points.txt").write_text(told_plugins.ENTRY_POINTS)
    model.mkdir(exist_ok=True)
    byte_tokenizer().tokenizer.save(str(model / "tokenizer.json"))
    file = folder / "deployment.toml"
    file.write_text(deployment(model, **changes))
    environment = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "plancha_app", "serve", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    server = Server(process, file)
    assert process.stdout is not None and process.stderr is not None
    out, err = process.stdout, process.stderr
    readers = [
        threading.Thread(target=lambda: server.said.extend(map(str.rstrip, out))),
        threading.Thread(target=lambda: server.lines.extend(map(parsed, err))),
    ]
    for reader in readers:
        reader.start()
    try:
        yield server
    finally:
        process.kill()  # its children end by themselves
        process.wait()
        for reader in readers:
            reader.join()  # and so no child is left that holds the pipes
        out.close()
        err.close()


def deployment(
    model: Path,
    *,
    gateways: int = 2,
    executor: str = "paced",
    port: int = 0,
    server: str = "",
    more: str = "",
) -> str:
    return f"""
model.name = "{model}"
batch = {{ max_sequences = 8 }}
executor.plugin = "{executor}"
scheduler.plugin = "telling"
transport.http = {{ port = {port} }}
server = {{ gateways = {gateways}, log_format = "json"{server and ", "}{server} }}
{more}
"""


def parsed(line: str) -> dict[str, Any]:
    try:
        told = json.loads(line)
    except ValueError:
        return {"event": line}
    return told if isinstance(told, dict) else {"event": line}


async def ended(server: Server, code: int) -> None:
    await server.until(lambda: server.process.poll() is not None)
    assert server.process.returncode == code
    await server.until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in server.pids()))
    for line in server.told("process_started"):
        assert not Path(line["link"]).parent.exists()


async def nobody_left(server: Server) -> None:
    assert len(server.pids()) == 3
    await server.until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in server.pids()))
