"""What keeps a server of several processes from starting, and what a gateway does without."""

import subprocess
import sys
from pathlib import Path

import anyio

from server_processes import HANG_S, Server, ended, started


async def test_a_model_that_does_not_load_ends_all_with_its_reason(tmp_path: Path) -> None:
    with started(tmp_path, executor="failing", gateways=1) as server:
        with anyio.fail_after(HANG_S):
            assert await anyio.to_thread.run_sync(server.process.wait) == 1
        await server.until(lambda: server.said)
    assert server.said == ["plancha: shard 2 of 3 is missing"]


async def test_a_port_that_is_taken_is_not_shared_with_whoever_has_it(
    server: Server, tmp_path: Path
) -> None:
    port = int(server.url.rpartition(":")[2])
    with started(tmp_path, port=port) as second:
        with anyio.fail_after(HANG_S):
            assert await anyio.to_thread.run_sync(second.process.wait) == 1
        (told,) = await second.until(lambda: second.said)
    assert f"port {port}" in told
    assert second.told("process_started") == []


def test_a_gateway_never_imports_torch() -> None:
    source = (
        "import sys, plancha_app.gateway_process, plancha_transports.http\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & "
        "{'torch', 'numba', 'cupy', 'plancha_engine'}))"
    )
    command = [sys.executable, "-c", source]
    told = subprocess.run(command, check=True, capture_output=True, text=True)

    assert told.stdout == "[]\n"


async def test_a_worker_that_is_killed_at_every_load_is_given_up_with_one_message(
    tmp_path: Path,
) -> None:
    with started(tmp_path, executor="crashing", gateways=1) as server:
        await ended(server, 1)
        await server.until(lambda: server.said)
    assert server.said == [
        "plancha: The process worker ended 4 times before it was ready; "
        "the last one was killed by SIGKILL, as the system does when memory runs out."
    ]
    deaths = server.told("process_died", which="worker")
    assert [line["code"] for line in deaths] == [-9] * 4
