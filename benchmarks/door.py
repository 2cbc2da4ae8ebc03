"""`make bench-door`: streaming front ends beside ours, CPU per event and events per second.

    python benchmarks/door.py [--streams 1000] [--tokens 100] [--repeat 5]

Every server is a process of its own; the clients, in this one, only count bytes. Each side's best
of the repetitions counts: whatever else the machine does can only slow it down.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import attrs
import cyclopts
import numpy as np
import orjson
from cyclopts import Parameter
from door_reader import Ask, Readers, message, post
from door_servers import LOAD as IDLE
from door_servers import PaddedText
from rich.console import Console
from rich.progress import track
from rich.table import Table

from plancha.messages import Frame
from plancha.record import Record
from plancha.streams.generation import Generation
from plancha.streams.outbox import Stream
from plancha.streams.outboxes import Outboxes

SERVERS = Path(__file__).with_name("door_servers.py")
GENERATE = post("/generate", b'{"prompt":"x","max_tokens":100000}')
COMPLETION = post(
    "/v1/completions", b'{"prompt":"x","max_tokens":100000,"stream":true,"request_id":"r"}'
)
SOCKET = message(b'{"type":"generate","id":"r","prompt":"x","max_tokens":100000}')

MANY = 10_000
BATCH = 1600

notes = Console(stderr=True)


@attrs.frozen
class Side:
    """One server, asked in one way; with `flood` it has tokens faster than it can write them."""

    name: str
    server: str
    ask: Ask
    flood: bool = False
    baselines: tuple[str, ...] = ()
    target: float | None = None  # times the first baseline's events per second


STARLETTE = ("starlette", "starlette, httptools")
WEBSOCKETS = ("websockets",)

OURS = Side("ours, /generate", "/generate", GENERATE, False, STARLETTE, 2.5)

SIDES = (
    Side("the call that sends, alone", "system calls", GENERATE),
    Side("Starlette on uvicorn, a queue a client", "starlette", GENERATE),
    Side("the same with httptools", "starlette, httptools", GENERATE),
    Side("websockets, a queue a client", "websockets", SOCKET),
    OURS,
    Side("ours, /v1/completions", "/v1/completions", COMPLETION, False, STARLETTE, 2.5),
    Side("ours, WebSocket", "/v1/stream", SOCKET, False, WEBSOCKETS, 2.5),
    Side("ours, /v1/completions, flooded", "/v1/completions", COMPLETION, True, STARLETTE, 6),
    Side("ours, WebSocket, flooded", "/v1/stream", SOCKET, True, WEBSOCKETS, 6),
    Side("ours, /generate, flooded", "/generate", GENERATE, True, STARLETTE, None),
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
        rss_mib = next(lines)["rss_mib"] if side.baselines else {}
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
) -> None:
    """Measure every side in turn and show the best of each; then the fan-out, and the memory.

    Parameters
    ----------
    streams
        Clients at once.
    tokens
        Steps that count, of one token for each client.
    repeat
        Runs of each side.
    only
        Names of servers in door_servers.py.
    """
    sides = [side for side in SIDES if only is None or side.server in only]
    found: dict[Side, list[Found]] = {side: [] for side in sides}
    runs = [side for _ in range(repeat) for side in sides]
    for side in track(runs, "serving", transient=True, console=notes):
        found[side].append(run(side, streams, tokens))
    console = Console()
    console.print(speed_table(found, streams))
    if only is None:
        console.print(fan_out_table())
        many = run(OURS, MANY, 50)
        console.print(memory_table(many.rss_mib))


def speed_table(found: dict[Side, list[Found]], streams: int) -> Table:
    """Best of each side, beside its baselines."""
    table = Table(
        "server",
        "tokens/s",
        "CPU µs",
        "bytes",
        "times the baselines",
        "target",
        title=f"{streams:,} streams, per token; the best of {len(next(iter(found.values())))}",
    )
    best = {side: max(each.per_s for each in runs) for side, runs in found.items()}
    of_server = {side.server: rate for side, rate in best.items() if not side.baselines}
    for side, runs in found.items():
        bases = [of_server[name] for name in side.baselines if name in of_server]
        table.add_row(
            side.name,
            f"{best[side]:,.0f}",
            f"{min(each.cpu_us for each in runs):.1f}",
            f"{runs[0].bytes_each:.0f}",
            " / ".join([f"{best[side] / base:.2f}" for base in bases]),
            "" if side.target is None else f"{side.target:g}",
        )
    return table


def fan_out_table() -> Table:
    """A step's frame on its way to the outboxes of a full batch."""
    table = Table("", "µs per token", title=f"a frame reaches {BATCH:,} outboxes, without sockets")
    to_outboxes, to_sinks = fan_out_us(BATCH)
    table.add_row("into the outboxes", f"{to_outboxes:.3f}")
    table.add_row("and an empty sink for each", f"{to_sinks:.3f}")
    return table


def fan_out_us(streams: int) -> tuple[float, float]:
    """Per token, the best of fifty frames: `deliver` alone, and with a sink that does nothing."""
    outboxes = Outboxes(lambda generation: None)
    generations = [_generation(number) for number in range(streams)]
    for generation in generations:
        outboxes.add(generation)
        generation.attach(lambda: None)
    frame = Frame(np.arange(streams), np.full(streams, 7, np.int32), (), (), IDLE)
    delivered, woken = [], []
    for _ in range(50):
        begun = time.perf_counter()
        outboxes.deliver(frame)
        filled = time.perf_counter()
        outboxes.wake_all()
        delivered.append(filled - begun)
        woken.append(time.perf_counter() - begun)
        for generation in generations:
            generation.take()
    return 1e6 * min(delivered) / streams, 1e6 * min(woken) / streams


def _generation(number: int) -> Generation:
    text = PaddedText(5).stream()
    stream = Stream(number=number, index=0, prompt=np.array([1], np.int32), text=text)
    record = Record(id=str(number), label=None, tenant="", model="", created=0, input_tokens=1)
    return Generation(record, (stream,), lambda control: None)


def memory_table(rss_mib: dict[str, float]) -> Table:
    """What the gateway's process holds while many streams come and go."""
    table = Table("when", "MiB", "KiB a stream", title=f"{MANY:,} open streams of /generate")
    start = rss_mib["start"]
    for when, rss in rss_mib.items():
        table.add_row(when, f"{rss:,.0f}", f"{(rss - start) * 1024 / MANY:.1f}")
    return table


if __name__ == "__main__":
    cyclopts.run(main)
