"""What `/metrics` says, read by Prometheus' own parser."""

import time
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from plancha.gateway import Gateway
from plancha.testing.embedded import embedded
from plancha.testing.gate import GatedExecutor
from plancha_text.byte_text import byte_text

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


async def test_the_workers_load_is_told_as_it_is(
    serve: Any, emits: Any, connect: Any, until: Any
) -> None:
    gated = GatedExecutor(emits(65))
    async with serve(gated) as server, connect(server) as client:
        await client.post("/generate", {"prompt": "x" * 20, "max_tokens": 40})
        await gated.run(2)
        await client.receive_until(b'"index":1')
        await gated.started()
        found = await scrape(server)
        assert found["plancha_open_requests"] == 1
        assert found["plancha_running_sequences"] == 1
        assert found["plancha_waiting_sequences"] == 0
        assert found["plancha_kv_blocks"] == 64
        assert found["plancha_kv_free_blocks"] + found["plancha_kv_cached_blocks"] == 62
        assert found["plancha_kv_used_blocks"] == 2
        assert 0 <= found["plancha_kv_waste_ratio"] < 1
        assert found["plancha_steps_total"] == 2
        assert found["plancha_step_age_seconds"] > 0
        gated.open()
        await server.quiet()


async def test_a_requests_life_is_in_the_figures_of_both_halves(serve: Any, says: Any) -> None:
    async with serve(says("Hi")) as server:
        await server.events("/generate", {"prompt": "x" * 20})
        await server.post("/generate", {"prompt": "x" * 300})
        found = await scrape(server)
        assert found["plancha_worker_up"] == 1
        assert found["plancha_engine_stalled"] == 0
        assert found["plancha_requests_totalcompleted"] == 1
        assert found["plancha_sequences_totalstop"] == 1
        assert found["plancha_time_to_first_token_seconds_count"] == 1
        assert found["plancha_inter_token_seconds_count"] == 2  # "H", "i" and the eos
        assert found["plancha_generated_tokens_total"] == 3
        assert found["plancha_prompt_tokens_totalcomputed"] == 20
        assert found["plancha_tenant_tokens_totalpromptother"] == 20  # the file names nobody
        assert found["plancha_rejections_totalcontext_length_exceeded"] == 1
        assert found["plancha_http_requests_total/generate200"] == 1
        assert found["plancha_http_requests_total/generate400"] == 1
        assert found["process_resident_memory_bytes"] > 0


async def test_an_unknown_address_has_no_series_of_its_own(serve: Any, says: Any) -> None:
    async with serve(says("Hi")) as server:
        await server.get("/no/such/thing")
        await server.get("/nor/this")
        assert (await scrape(server))["plancha_http_requests_totalnone404"] == 2


async def test_metrics_are_there_before_the_model(listen: Any) -> None:
    async with listen(Gateway("tiny"), None) as server:
        found = await scrape(server)
        assert found["plancha_open_requests"] == 0
        assert found["plancha_worker_up"] == 0
        assert "plancha_running_sequences" not in found


async def test_nothing_is_told_twice_and_no_label_is_a_clients(serve: Any, says: Any) -> None:
    async with serve(says("Hi")) as server:
        await server.events("/generate", {"prompt": "x"})
        async with server.session.get(server.url + "/metrics") as got:
            text = await got.text()
    families = list(text_string_to_metric_families(text))
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    assert all(name.startswith(("plancha_", "process_")) for name in names)
    labels = {label for family in families for one in family.samples for label in one.labels}
    assert labels == {"le", "kind", "source", "reason", "outcome", "tenant", "door", "status"}


async def test_a_step_that_does_not_end_shows(emits: Any, listen: Any, until: Any) -> None:
    gated = GatedExecutor(emits(65))
    async with (
        embedded(gated, byte_text(), step_deadline_s=0.05) as kernel,
        listen(kernel.gateway, kernel) as server,
        server.session.post(server.url + "/generate", json={"prompt": "x"}),
    ):
        await gated.started()
        await until(lambda: kernel.gateway.stalled)
        found = await scrape(server)
        assert found["plancha_engine_stalled"] == 1
        assert found["plancha_step_age_seconds"] >= 0.05
        gated.open()
