"""`make bench`: our server beside `transformers`, same weights, same job, one after the other.

    python benchmarks/mixed_job.py [--quick]

The mixed job: 128 prompt tokens, outputs of 16, 32, 64 and 128 tokens in turn, 32 clients. Each
side runs in a process of its own and alone. Appends a JSON line to benchmarks/results.jsonl.
"""

import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import orjson
from rich.console import Console
from rich.table import Table

from plancha_app.bench.command import measure
from plancha_app.bench.job import Job

HERE = Path(__file__).parent
RESULTS = HERE / "results.jsonl"
CONCURRENCY = 32
FULL = 28  # sequences in a step that counts as full: a client takes a moment to ask again
DEPLOYMENT = """
[server]
log_level = "debug"
log_format = "json"
[transport.http]
port = 0
[allocator]
plugin = "{allocator}"
"""

notes = Console(stderr=True)


@attrs.frozen
class Scale:
    """How many requests each side answers; the slow ones get fewer of the same mix."""

    continuous: int = 128
    ours_single: int = 16
    theirs_single: int = 12
    static: int = 64
    contiguous: int = 32


QUICK = Scale(continuous=32, ours_single=4, theirs_single=4, static=32, contiguous=8)


def main() -> None:
    """Run everything, print two tables, and append to the results."""
    scale = QUICK if "--quick" in sys.argv[1:] else Scale()
    load = os.getloadavg()[0]
    if load > 1:
        notes.print(f"The machine is busy (load {load:.1f}): take the figures with care.")
    ours = measure_ours(scale)
    theirs = measure_theirs(scale)
    rows = compare(ours, theirs)
    console = Console()
    console.print(speed_table(rows))
    console.print(single_line(ours, theirs))
    console.print(split_table(ours["steps"]))
    record = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {"cpus": os.cpu_count(), "processor": platform.machine(), "load": load},
        "versions": {name: version(name) for name in ("plancha", "torch", "numba", "transformers")},
        "scale": attrs.asdict(scale),
        "rows": rows,
        "ours": ours,
        "theirs": theirs,
    }
    with RESULTS.open("ab") as file:
        file.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))


def measure_ours(scale: Scale) -> dict[str, Any]:
    """Our server: the mixed job, one at a time, and in batches that wait for their longest."""
    with TemporaryDirectory() as folder, serving(Path(folder)) as (url, log):
        measure(url, Job(requests=4, concurrency=4, output_tokens="4"))  # warm
        steps_before = len(read_steps(log))
        notes.print("ours, continuous …")
        continuous = measure(url, Job(requests=scale.continuous, concurrency=CONCURRENCY))
        steps = read_steps(log)[steps_before:]
        notes.print("ours, one at a time …")
        single = measure(url, Job(requests=scale.ours_single, concurrency=1, seed=1))
        notes.print("ours, static batches …")
        batches = [
            measure(url, Job(requests=CONCURRENCY, concurrency=CONCURRENCY, seed=2 + batch))
            for batch in range(scale.static // CONCURRENCY)
        ]
    with TemporaryDirectory() as folder, serving(Path(folder), "contiguous") as (url, _):
        measure(url, Job(requests=4, concurrency=4, output_tokens="4"))
        notes.print("ours, a slab of the context for each …")
        contiguous = measure(url, Job(requests=scale.contiguous, concurrency=CONCURRENCY, seed=9))
    return {
        "continuous": continuous,
        "contiguous": contiguous,
        "single": single,
        "static": {
            "output_tokens": sum(batch["output_tokens"] for batch in batches),
            "seconds": sum(batch["duration_s"] for batch in batches),
        },
        "steps": split(steps),
    }


def measure_theirs(scale: Scale) -> dict[str, Any]:
    """`transformers`, and how fast the machine reads weights at all."""
    found = {}
    for mode, requests in (
        ("single", scale.theirs_single),
        ("static", scale.static),
        ("weights", 0),
    ):
        notes.print(f"transformers, {mode} …")
        program = (sys.executable, str(HERE / "transformers_generate.py"), mode, str(requests))
        done = subprocess.run(program, stdout=subprocess.PIPE, check=True)
        found[mode] = orjson.loads(done.stdout.splitlines()[-1])
    return found


@contextmanager
def serving(folder: Path, allocator: str = "paged") -> Iterator[tuple[str, Path]]:
    """A server of the default model on a free loopback port; its address and its log."""
    deployment, log = folder / "bench.toml", folder / "log.jsonl"
    deployment.write_text(DEPLOYMENT.format(allocator=allocator))
    command = (sys.executable, "-m", "plancha_app", "serve", str(deployment))
    with (
        log.open("wb") as err,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=err) as server,
    ):
        assert server.stdout is not None
        greeting = server.stdout.readline().decode()
        address = re.search(r"http://\S+", greeting)
        if address is None:
            sys.exit(f"the server did not start: {greeting}{log.read_text()}")
        try:
            yield address[0], log
        finally:
            server.send_signal(signal.SIGTERM)


def read_steps(log: Path) -> list[dict[str, Any]]:
    """The server's own account of every step so far."""
    lines = (orjson.loads(line) for line in log.read_bytes().splitlines() if b'"step"' in line)
    return [line for line in lines if line["event"] == "step"]


def split(steps: list[dict[str, Any]]) -> dict[str, Any]:
    """Shares of the time of steps with a full batch; `outside` is Python around the model."""
    full = [step for step in steps if step["sequences"] >= FULL]
    seconds: dict[str, float] = defaultdict(float)
    for step in full:
        seconds["outside"] += step["waited_s"] + step["took_s"] - step["seconds"]
        for name, took_s in step["timings"].items():
            seconds[name] += took_s
    whole = sum(seconds.values())
    return {
        "steps": len(full),
        "mean_s": whole / len(full) if full else None,
        "shares": {name: took_s / whole for name, took_s in seconds.items()},
    }


def compare(ours: dict[str, Any], theirs: dict[str, Any]) -> list[dict[str, Any]]:
    """Output tokens a second of every way, and their ratios to `transformers`."""
    speeds = {
        "transformers, one at a time": rate(theirs["single"]),
        f"transformers, static batches of {CONCURRENCY}": rate(theirs["static"]),
        "plancha, one at a time": ours["single"]["output_tokens_per_s"],
        f"plancha, static batches of {CONCURRENCY}": rate(ours["static"]),
        "plancha, continuous, contiguous KV": ours["contiguous"]["output_tokens_per_s"],
        f"plancha, continuous, {CONCURRENCY} clients": ours["continuous"]["output_tokens_per_s"],
    }
    single, static = list(speeds.values())[:2]
    return [
        {
            "way": way,
            "tokens_per_s": speed,
            "to_single": speed / single,
            "to_static": speed / static,
        }
        for way, speed in speeds.items()
    ]


def rate(run: dict[str, float]) -> float:
    """Output tokens a second."""
    return run["output_tokens"] / run["seconds"]


def speed_table(rows: list[dict[str, Any]]) -> Table:
    """What the README quotes."""
    table = Table(title="Mixed job: 128 tokens in, 16/32/64/128 out")
    table.add_column("", no_wrap=True)
    table.add_column("tokens/s", justify="right")
    table.add_column("to one at a time", justify="right")
    table.add_column("to static", justify="right")
    for row in rows:
        cells = (f"{row['tokens_per_s']:.1f}", f"{row['to_single']:.1f}", f"{row['to_static']:.1f}")
        table.add_row(row["way"], *cells)
    return table


def single_line(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    """One token at a time against the rate at which weights can be read."""
    weights = theirs["weights"]
    least_s = weights["bytes"] / weights["bytes_per_s"]
    took_s = ours["single"]["inter_token_s"]["p50"]
    return (
        f"One at a time a token takes {took_s * 1000:.1f} ms. "
        f"To read {weights['bytes'] / 1e6:.0f} MB of weights at "
        f"{weights['bytes_per_s'] / 1e9:.1f} GB/s takes {least_s * 1000:.1f} ms: "
        f"{least_s / took_s:.2f} of what the machine allows."
    )


def split_table(steps: dict[str, Any]) -> Table:
    """Where the time of a full step goes."""
    table = Table(title=f"A step with {FULL} or more sequences ({steps['steps']} measured)")
    table.add_column("")
    table.add_column("ms", justify="right")
    table.add_column("share", justify="right")
    for name, share in sorted(steps["shares"].items(), key=lambda item: -item[1]):
        table.add_row(name, f"{share * steps['mean_s'] * 1000:.2f}", f"{share:.1%}")
    return table


if __name__ == "__main__":
    main()
