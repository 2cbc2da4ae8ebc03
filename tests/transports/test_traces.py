"""`GET /v1/requests/{id}/trace`: to its owner and to operators; to anybody else it is not there."""

import hashlib
from typing import Any

import jsonschema_rs
import orjson

from plancha.access import Access
from plancha.testing.embedded import Limits
from plancha.testing.gate import GatedExecutor
from plancha_transports.openapi import document
from plancha_transports.options import HttpOptions

A, B, ROOT = "sk-test-a", "sk-test-b", "sk-test-root"


def sha(key: str) -> str:
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


ACCESS = Access(
    keys={sha(A): "acme", sha(B): "other", sha(ROOT): "root"},
    anonymous=None,
    operators=frozenset({"root"}),
)


async def get(server: Any, path: str, key: str) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {key}"}
    async with server.session.get(server.url + path, headers=headers) as response:
        return response.status, orjson.loads(await response.read())


def is_as_described(trace: Any) -> bool:
    described = orjson.loads(orjson.dumps(document(HttpOptions(), needs_key=True)))
    schema = {
        "$ref": "#/components/schemas/RequestTrace",
        "components": described["components"],
    }
    return jsonschema_rs.validator_for(schema).is_valid(trace)


async def test_owner_and_operator_are_told_and_nobody_else(
    serve: Any, emits: Any, connect: Any
) -> None:
    gated = GatedExecutor(emits(65, 66, 257))
    asked = b'{"prompt": "x"}'
    head = (
        f"POST /generate HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {A}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(asked)}\r\n\r\n"
    ).encode()
    async with (
        serve(gated, limits=Limits(max_sequences=1)) as server,
        connect(server) as first,
        connect(server) as second,
    ):
        server.gateway.access = ACCESS
        await first.send(head + asked)
        await gated.started()
        await second.send(head + asked)
        while len(server.kernel.planner.sequences) < 2:
            await server.get("/health/live")
        gated.commit()
        await gated.started()  # a step that the second was looked at for
        running, waiting = server.gateway._records

        absent = await get(server, "/v1/requests/req-0/trace", B)
        assert absent[0] == 404
        for request in (running, waiting):
            assert await get(server, f"/v1/requests/{request}/trace", B) == absent
            for key, tenant in ((A, None), (ROOT, "acme")):
                status, trace = await get(server, f"/v1/requests/{request}/trace", key)
                assert (status, trace["id"], trace.get("tenant")) == (200, request, tenant)
                assert is_as_described(trace), trace
                state = "running" if request == running else "waiting"
                assert [each["state"] for each in trace["sequences"]] == [state]
        assert trace["sequences"][0]["reason"] == "slots"

        gated.open()
        await second.receive_until(b"event: done")
        _, trace = await get(server, f"/v1/requests/{waiting}/trace", A)
        assert is_as_described(trace), trace
        assert trace["sequences"][0]["history"][-1]["outcome"] == "stop"
