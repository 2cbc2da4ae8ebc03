"""What health says to anybody, without a key: JSON, a reason in a word or two, and no names."""

from typing import Any

import attrs
import jsonschema_rs
import orjson
import pytest

from plancha.access import Access
from plancha.gateway import Gateway
from plancha.messages import Load
from plancha.startup import Stage
from plancha_transports.openapi import document
from plancha_transports.options import HttpOptions

LOAD = Load(total_blocks=64, free_blocks=64, running=0, waiting=0)


def is_as_described(name: str, answer: Any) -> bool:
    described = orjson.loads(orjson.dumps(document(HttpOptions(), needs_key=False)))
    schema = {
        "$ref": f"#/components/schemas/{name}",
        "components": described["components"],
    }
    return jsonschema_rs.validator_for(schema).is_valid(answer)


async def test_a_start_tells_its_phase_and_percent(listen: Any) -> None:
    gateway = Gateway("tiny")
    async with listen(gateway, None) as server:
        for stage in (
            Stage("starting"),
            Stage("fetching", 7, "fetching s3://acme/secret"),
            Stage("compiling kernels", text="a line for the log"),
            Stage("loading weights", 40),
        ):
            gateway.stage = stage
            status, answer = await server.get("/health/startup")
            assert (status, answer) == (
                503,
                {
                    "status": "loading",
                    "reason": "loading",
                    "phase": stage.phase,
                    "percent": stage.percent,
                },
            )
            assert is_as_described("Startup", answer)
        gateway.state, gateway.reason = "ready", ""
        status, answer = await server.get("/health/startup")
        assert (status, answer["phase"], answer["percent"]) == (200, "started", 100)
        assert is_as_described("Startup", answer)


async def test_a_start_that_failed_says_so_and_how_far_it_came(listen: Any) -> None:
    gateway = Gateway("tiny")
    gateway.stage = Stage("loading weights", 40)
    gateway.refuse("failed", "the model could not be loaded")
    async with listen(gateway, None) as server:
        status, answer = await server.get("/health/startup")
        assert (status, answer["status"]) == (503, "failed")
        assert (answer["phase"], answer["percent"]) == ("loading weights", 40)
        assert (await server.get("/health/live"))[0] == 200


async def test_told_to_stop_before_it_has_started_it_has_not(listen: Any) -> None:
    gateway = Gateway("tiny")
    gateway.stage = Stage("loading weights", 40)
    gateway.refuse("draining", "it is shutting down")
    async with listen(gateway, None) as server:
        status, answer = await server.get("/health/startup")
        assert (status, answer["status"]) == (503, "draining")
        assert (answer["phase"], answer["percent"]) == ("loading weights", 40)


async def test_a_server_that_had_started_still_has_while_it_drains(serve: Any, says: Any) -> None:
    async with serve(says("Hi")) as server:
        server.gateway.refuse("draining", "it is shutting down")
        status, answer = await server.get("/health/startup")
        assert (status, answer["status"], answer["phase"]) == (200, "draining", "started")


async def test_a_server_that_cannot_record_usage_is_not_ready_until_it_can(
    serve: Any, says: Any
) -> None:
    async with serve(says("Hi")) as server:
        server.gateway.load = attrs.evolve(LOAD, ledger_writable=False)
        assert await server.get("/health/ready") == (
            503,
            {"status": "refusing", "reason": "ledger_unavailable"},
        )
        assert (await server.get("/health/live"))[0] == 200
        assert (await server.get("/health/startup"))[0] == 200
        server.gateway.load = LOAD
        assert (await server.get("/health/ready"))[0] == 200


@pytest.mark.parametrize("path", ["/health/live", "/health/ready", "/health/startup"])
async def test_no_key_is_needed_and_no_name_is_told(serve: Any, says: Any, path: str) -> None:
    async with serve(says("Hi")) as server:
        server.gateway.access = Access(keys={"sha256:" + "0" * 64: "acme"}, anonymous=None)
        async with server.session.get(server.url + path) as response:
            assert (response.status, response.content_type) == (200, "application/json")
            body = await response.read()
    assert b"acme" not in body and b"tiny" not in body
    assert is_as_described("Startup" if "startup" in path else "Health", orjson.loads(body))
