"""One scrape of the shared port, whoever answers it, sees every process."""

import os
import signal
from pathlib import Path

import aiohttp
import anyio
from prometheus_client.parser import text_string_to_metric_families

from server_clients import client_of, complete
from server_processes import HANG_S, Server, started

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def scrape(session: aiohttp.ClientSession) -> Samples:
    async with session.get("/metrics") as response:
        assert response.status == 200, await response.text()
        text = await response.text()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def told_of(found: Samples, name: str) -> dict[str, float]:
    """A family's values by gateway."""
    return {
        labels["gateway"]: value
        for (sample, pairs), value in found.items()
        if sample == name and "gateway" in (labels := dict(pairs))
    }


async def test_each_gateway_tells_the_figures_of_all_and_each_family_by_gateway(
    server: Server,
) -> None:
    for name in server.gateways().values():
        async with client_of(server, name) as client:
            found = await scrape(client)
            assert told_of(found, "plancha_gateway_up") == {"1": 1, "2": 1}
            assert told_of(found, "plancha_open_requests") == {"1": 0, "2": 0}
            assert set(told_of(found, "plancha_event_loop_lag_seconds_count")) == {"1", "2"}
            starts = {
                dict(labels)["process"]: value
                for (sample, labels), value in found.items()
                if sample == "plancha_process_starts_total"
            }
            assert starts == {"worker": 1, "gateway-1": 1, "gateway-2": 1}


async def test_the_workers_figures_come_once_through_whichever_gateway(server: Server) -> None:
    for name in server.gateways().values():
        async with client_of(server, name) as client:
            await complete(client, 3)
            found = await scrape(client)
        alone: frozenset[tuple[str, str]] = frozenset()
        assert found["plancha_worker_up", alone] == 1
        assert found["plancha_running_sequences", alone] == 0
        assert found["plancha_time_to_first_token_seconds_count", alone] >= 1
        assert found["plancha_worker_process_resident_memory_bytes", alone] > 0


async def test_a_gateway_or_a_worker_that_stands_still_hides_nobody_elses_figures(
    tmp_path: Path,
) -> None:
    with started(tmp_path, server="hang_timeout_s = 0") as server:
        await server.ready()
        (place, _), (_, other) = server.gateways().items()
        async with client_of(server, other) as client:
            await complete(client, 1)
            os.kill(server.pid(place), signal.SIGSTOP)
            os.kill(server.pid("worker"), signal.SIGSTOP)
            found = await scrape(client)
            up = {number: float(f"gateway-{number}" != place) for number in ("1", "2")}
            assert told_of(found, "plancha_gateway_up") == up
            alive = {number for number, is_up in up.items() if is_up}
            assert set(told_of(found, "plancha_open_requests")) == alive
            os.kill(server.pid(place), signal.SIGCONT)
            os.kill(server.pid("worker"), signal.SIGCONT)
            with anyio.fail_after(HANG_S):
                while 0 in told_of(found, "plancha_gateway_up").values():
                    found = await scrape(client)
