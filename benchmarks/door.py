"""`make bench-door`: streaming front ends beside ours, CPU per event and events per second.

    python benchmarks/door.py [--streams 1000] [--tokens 100] [--repeat 5] [--memory]

Every server is a process of its own; the clients, in this one, only count bytes. Each side's best
of the repetitions counts: whatever else the machine does can only slow it down.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import attrs
import cyclopts
import orjson
from cyclopts import Parameter
from door_reader import Ask, Readers, message, post
from rich.console import Console
from rich.progress import track
from rich.table import Table

SERVERS = Path(__file__).with_name("door_servers.py")
GENERATE = post("/generate", b'{"prompt":"x","max_tokens":100000}')
COMPLETION = post(
    "/v1/completions", b'{"prompt":"x","max_tokens":100000,"stream":true,"request_id":"r"}'
)
SOCKET = message(b'{"type":"generate","id":"r","prompt":"x","max_tokens":100000}')

notes = Console(stderr=True)


@attrs.frozen
class Side:
    """One server, asked in one way; with `flood` it has tokens faster than it can write them."""

    name: str
    server: str
    ask: Ask
    flood: bool = False
    baseline: str | None = None
    target: float | None = None  # times the baseline's events per second


SIDES = (
    Side("Starlette on uvicorn, a queue a client", "starlette", GENERATE),
    Side("websockets, a queue a client", "websockets", SOCKET),
    Side("ours, /generate", "/generate", GENERATE, False, "starlette", 2.5),
    Side("ours, /v1/completions", "/v1/completions", COMPLETION, False, "starlette", 2.5),
    Side("ours, WebSocket", "/v1/stream", SOCKET, False, "websockets", 2.5),
    Side("ours, /v1/completions, flooded", "/v1/completions", COMPLETION, True, "starlette", 6),
    Side("ours, WebSocket, flooded", "/v1/stream", SOCKET, True, "websockets", 6),
    Side("ours, /generate, flooded", "/generate", GENERATE, True, "starlette", None),
)


@attrs.frozen
class Found:
    """What one run cost."""

    tokens: int
    cpu_us: float  # of the server, a token
    per_s: float
    bytes_each: float  # on the wire, a token
    rss_mib: dict[str, float]


def run(side: Side, streams: int, tokens: int) -> Found:
    """One server from start to end. Raises `ConnectionError` when it breaks a stream off."""
    arguments = [side.server, str(streams), str(tokens), *(["flood"] if side.flood else [])]
    with _process(arguments) as lines:
        port = next(lines)["port"]
        readers = Readers()
        for _ in readers.connect(port, side.ask, streams):
            pass
        readers.read_all()
        cost = next(lines)
        rss_mib = next(lines)["rss_mib"] if side.baseline else {}
    count = streams * tokens
    return Found(
        tokens=count,
        cpu_us=1e6 * cost["cpu_s"] / count,
        per_s=count / cost["wall_s"],
        bytes_each=readers.received / streams / (tokens + 2),
        rss_mib=rss_mib,
    )


@contextmanager
def _process(
    arguments: list[str],
) -> Iterator[Iterator[dict[str, Any]]]:
    server = subprocess.Popen(
        [sys.executable, str(SERVERS), *arguments],
        stdout=subprocess.PIPE,
        stderr=sys.stderr if "--loud" in sys.argv else subprocess.DEVNULL,
    )
    assert server.stdout is not None
    try:
        yield map(orjson.loads, server.stdout)
    finally:
        server.kill()
        server.wait()


def main(
    *,
    streams: int = 1000,
    tokens: int = 100,
    repeat: int = 5,
    only: Annotated[list[str], Parameter(negative=())] | None = None,
    loud: bool = False,
) -> None:
    """Measure every side, in turn, and show the best of each."""
    sides = [side for side in SIDES if only is None or side.server in only]
    found: dict[Side, list[Found]] = {side: [] for side in sides}
    runs = [side for _ in range(repeat) for side in sides]
    for side in track(runs, "serving", transient=True, console=notes):
        found[side].append(run(side, streams, tokens))
    Console().print(speed_table(found, streams))


def speed_table(found: dict[Side, list[Found]], streams: int) -> Table:
    """Best of each side, beside its baseline."""
    table = Table(
        "server",
        "events/s",
        "CPU µs an event",
        "bytes",
        "times the baseline",
        "target",
        title=f"{streams:,} streams, per token",
    )
    best = {side: max(each.per_s for each in runs) for side, runs in found.items()}
    for side, runs in found.items():
        base = [rate for other, rate in best.items() if other.server == side.baseline]
        table.add_row(
            side.name,
            f"{best[side]:,.0f}",
            f"{min(each.cpu_us for each in runs):.1f}",
            f"{runs[0].bytes_each:.0f}",
            f"{best[side] / base[0]:.2f}" if base else "",
            "" if side.target is None else f"{side.target:g}",
        )
    return table


if __name__ == "__main__":
    cyclopts.run(main)
