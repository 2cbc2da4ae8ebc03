"""What `/metrics` says, read by Prometheus' own parser."""

import time
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from plancha.gateway import Gateway
from plancha.testing.gate import GatedExecutor

LAG = "plancha_event_loop_lag_seconds"


async def scrape(server: Any) -> dict[str, float]:
    """Samples by name; a bucket's with its bound."""
    async with server.session.get(server.url + "/metrics") as response:
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        text = await response.text()
    return {
        sample.name + "".join(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_the_loop_is_late_by_as_long_as_somebody_blocks_it(
    serve: Any, says: Any, until: Any
) -> None:
    async with serve(says("Hi")) as server:
        before = await scrape(server)
        time.sleep(0.35)  # noqa: ASYNC251  (a hog is what this is about)
        count = before[f"{LAG}_count"]
        found = before
        while found[f"{LAG}_count"] == count:
            found = await scrape(server)
        late = found[f"{LAG}_count"] - found[f"{LAG}_bucket0.2"]
        late_before = before[f"{LAG}_count"] - before[f"{LAG}_bucket0.2"]
        assert late >= late_before + 1  # more of them where the machine itself is late
        assert found[f"{LAG}_sum"] - before[f"{LAG}_sum"] >= 0.2


async def test_the_workers_load_is_told_as_of_its_last_step(
    serve: Any, emits: Any, connect: Any, until: Any
) -> None:
    gated = GatedExecutor(emits(65))
    async with serve(gated) as server, connect(server) as client:
        assert "plancha_running_sequences" not in await scrape(server)
        await client.post("/generate", {"prompt": "x" * 20, "max_tokens": 40})
        await gated.run(2)
        await client.receive_until(b'"index":1')
        found = await scrape(server)
        assert found["plancha_open_requests"] == 1
        assert found["plancha_running_sequences"] == 1
        assert found["plancha_waiting_sequences"] == 0
        assert found["plancha_kv_blocks"] == 64
        assert found["plancha_kv_free_blocks"] + found["plancha_kv_cached_blocks"] == 62
        assert 0 <= found["plancha_kv_waste_ratio"] < 1
        gated.open()
        await server.quiet()


async def test_metrics_are_there_before_the_model(listen: Any) -> None:
    async with listen(Gateway("tiny"), None) as server:
        assert (await scrape(server))["plancha_open_requests"] == 0


async def test_nothing_but_our_own_names_and_no_label_is_told(serve: Any, says: Any) -> None:
    async with serve(says("Hi")) as server:
        await server.events("/generate", {"prompt": "x"})
        async with aiohttp.ClientSession() as session, session.get(server.url + "/metrics") as got:
            families = list(text_string_to_metric_families(await got.text()))
    assert all(family.name.startswith("plancha_") for family in families)
    labels = {label for family in families for one in family.samples for label in one.labels}
    assert labels == {"le"}
