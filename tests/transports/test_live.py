"""`GET /v1/live`: to operators the whole worker, to a tenant what is its own."""

from typing import Any

import jsonschema_rs
import orjson
import pytest
from structlog.testing import capture_logs

from plancha.access import Access, key_hash
from plancha.gateway import Gateway
from plancha.testing.gate import GatedExecutor
from plancha_transports.openapi import document
from plancha_transports.options import HttpOptions

A, B, ROOT = "sk-test-a", "sk-test-b", "sk-test-root"
ACCESS = Access(
    keys={key_hash(key.encode()): name for key, name in ((A, "acme"), (B, "beta"), (ROOT, "root"))},
    anonymous=None,
    operators=frozenset({"root"}),
)


async def get(server: Any, key: str | None = None) -> tuple[int, Any]:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    async with server.session.get(server.url + "/v1/live", headers=headers) as response:
        assert response.headers["Content-Type"].startswith("application/json")
        return response.status, orjson.loads(await response.read())


def is_as_described(told: Any) -> bool:
    described = orjson.loads(orjson.dumps(document(HttpOptions(), needs_key=True)))
    schema = {"$ref": "#/components/schemas/Live", "components": described["components"]}
    return jsonschema_rs.validator_for(schema).is_valid(told)


async def test_operators_see_everybody_and_a_tenant_itself(serve: Any, emits: Any) -> None:
    gated = GatedExecutor(emits(65))
    async with serve(gated) as server:
        server.gateway.access = ACCESS
        socket_url = server.url + "/v1/stream"
        bearer = {"Authorization": f"Bearer {A}"}
        async with server.session.ws_connect(socket_url, headers=bearer) as socket:
            await socket.send_json({"type": "generate", "id": "1", "prompt": "p" * 20})
            await gated.started()

            assert (await get(server))[0] == 401
            told = {}
            for key in (A, B, ROOT):
                status, told[key] = await get(server, key)
                assert status == 200
                assert is_as_described(told[key]), told[key]
            own, others, everything = told[A], told[B], told[ROOT]
            assert (own["scope"], everything["scope"]) == ("tenant", "all")
            assert [each["name"] for each in own["tenants"]] == ["acme"]
            assert [each["name"] for each in others["tenants"]] == ["beta"]
            assert [each["name"] for each in everything["tenants"]] == ["acme"]
            (sequence,) = everything["batch"]["sequences"]
            assert own["batch"]["sequences"] == [sequence]
            assert sequence["id"] in server.gateway._records
            assert others["batch"]["sequences"] == []
            assert b"acme" not in orjson.dumps(others)
            assert b"pppp" not in orjson.dumps(everything)
            gated.open()


async def test_where_nobody_needs_a_key_everybody_sees_everything(serve: Any, says: Any) -> None:
    async with serve(says("Hi")) as server:
        await server.events("/generate", {"prompt": "x"})
        status, told = await get(server)
    assert (status, told["scope"]) == (200, "all")
    assert is_as_described(told)
    assert told["counters"]["generated_tokens"] == 3
    assert told["counters"]["ended"]["stop"] == 1


@pytest.mark.parametrize("state", ["loading", "failed"])
async def test_without_a_worker_it_says_that_nobody_knows(listen: Any, state: Any) -> None:
    gateway = Gateway("tiny")
    gateway.state = state
    async with listen(gateway, None) as server:
        status, answer = await get(server)
    assert status == 503
    assert answer["error"]["type"] == "server_error"


async def test_a_page_that_looks_all_day_fills_no_log(serve: Any, says: Any) -> None:
    async with serve(says("Hi")) as server:
        with capture_logs() as lines:
            await get(server)
            await server.get("/v1/models")
            server.gateway.access = ACCESS
            await get(server)
    told = [(line["door"], line["log_level"]) for line in lines if line["event"] == "http_request"]
    assert told == [("/v1/live", "debug"), ("/v1/models", "info"), ("/v1/live", "info")]
