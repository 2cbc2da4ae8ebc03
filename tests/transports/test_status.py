"""Health, models, and how a request is doing."""

from typing import Any

import pytest

from plancha.gateway import Gateway
from plancha.testing.embedded import Limits
from plancha.testing.gate import GatedExecutor


async def test_while_loading_only_liveness_and_the_reason_are_given(listen: Any) -> None:
    async with listen(Gateway("tiny"), None) as server:
        assert (await server.get("/health/live"))[0] == 200
        for path in ("/health/ready", "/health/startup"):
            status, answer = await server.get(path)
            assert (status, answer["reason"]) == (503, "loading")
        status, answer = await server.get("/v1/models")
        assert (status, answer["data"]) == (200, [])
        assert (await server.get("/v1/models/tiny"))[0] == 404
        async with server.session.post(
            server.url + "/v1/completions", json={"prompt": "x"}
        ) as response:
            assert response.status == 503
            assert int(response.headers["Retry-After"]) > 0
            answer = await response.json()
        assert answer["error"]["type"] == "server_error"
        assert "loading" in answer["error"]["message"]


async def test_a_model_that_did_not_load_leaves_the_server_unready(listen: Any) -> None:
    gateway = Gateway("tiny")
    gateway.refuse("failed", "the model could not be loaded")
    async with listen(gateway, None) as server:
        for path in ("/health/ready", "/health/startup"):
            status, answer = await server.get(path)
            assert (status, answer["status"]) == (503, "failed")
            assert answer["reason"] == "the model could not be loaded"
        assert (await server.get("/health/live"))[0] == 200


async def test_a_loaded_model_is_ready_and_listed(serve: Any, says: Any) -> None:
    async with serve(says("Hi")) as server:
        for path in ("/health/live", "/health/ready", "/health/startup"):
            assert (await server.get(path))[0] == 200
        _, answer = await server.get("/v1/models")
        assert answer["object"] == "list"
        (model,) = answer["data"]
        assert (model["id"], model["object"]) == ("tiny", "model")
        assert (await server.get("/v1/models/tiny"))[1] == model
        assert (await server.get("/v1/models/a/b"))[0] == 404


async def test_a_server_whose_engine_makes_no_steps_is_not_ready(listen: Any) -> None:
    class Stuck(Gateway):
        stalled = True

    gateway = Stuck("tiny")
    gateway.state = "ready"
    async with listen(gateway, None) as server:
        status, answer = await server.get("/health/ready")
        assert (status, answer) == (503, {"status": "stalled", "reason": "engine_stalled"})
        assert (await server.get("/health/startup"))[0] == 200
        assert (await server.get("/health/live"))[0] == 200


async def test_a_draining_server_is_started_but_not_ready_and_closes_connections(
    serve: Any, says: Any, connect: Any
) -> None:
    async with serve(says("Hi")) as server, connect(server) as client:
        server.gateway.refuse("draining", "shutting down")
        assert (await server.get("/health/ready"))[0] == 503
        assert (await server.get("/health/startup"))[0] == 200
        assert (await server.get("/health/live"))[0] == 200
        await client.post("/generate", {"prompt": "x"})
        answer = await client.receive_all()
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"connection: close" in answer.lower()


async def test_a_request_is_queued_then_generating_then_done(
    serve: Any, emits: Any, connect: Any
) -> None:
    gated = GatedExecutor(emits(65, 66, 257))
    limits = Limits(max_sequences=1)
    async with (
        serve(gated, limits=limits) as server,
        connect(server) as first,
        connect(server) as second,
    ):
        await first.post("/generate", {"prompt": "xxx", "request_id": "mine"})
        await gated.run(1)
        await first.receive_until(b'"A"')
        await gated.started()
        await second.post("/generate", {"prompt": "yy"})
        while len(server.gateway._records) < 2:
            await server.get("/health/live")
        running, queued = server.gateway._records
        _, answer = await server.get(f"/v1/requests/{running}")
        assert (answer["status"], answer["outcome"]) == ("generating", None)
        assert (answer["id"], answer["request_id"]) == (running, "mine")
        assert (await server.get(f"/v1/requests/{queued}"))[1]["status"] == "queued"
        _, usage = await server.get(f"/v1/requests/{running}/usage")
        assert (usage["input_tokens"], usage["output_tokens"]) == (3, 1)
        gated.open()
        await second.receive_until(b"event: done")
        for request_id, prompt in ((running, 3), (queued, 2)):
            _, answer = await server.get(f"/v1/requests/{request_id}")
            assert (answer["status"], answer["outcome"]) == ("done", "completed")
            for _ in range(3):
                _, usage = await server.get(f"/v1/requests/{request_id}/usage")
                assert (usage["input_tokens"], usage["output_tokens"]) == (prompt, 3)


@pytest.mark.parametrize("method", ["get", "post"])
async def test_an_unknown_request_is_not_found(serve: Any, says: Any, method: str) -> None:
    async with serve(says("Hi")) as server:
        if method == "get":
            status, answer = await server.get("/v1/requests/req-0")
            assert (await server.get("/v1/requests/req-0/usage"))[0] == 404
        else:
            status, answer = await server.post("/v1/requests/req-0/cancel")
    assert (status, answer["error"]["code"]) == (404, "request_not_found")


async def test_a_cancelled_whole_answer_is_499_and_a_second_cancel_does_nothing(
    serve: Any, emits: Any, connect: Any
) -> None:
    gated = GatedExecutor(emits(65))
    async with serve(gated) as server, connect(server) as client:
        await client.post("/v1/completions", {"prompt": "xxx", "max_tokens": 200})
        await gated.run(2)
        await gated.started()
        (request_id,) = server.gateway._records
        for _ in range(2):
            assert (await server.post(f"/v1/requests/{request_id}/cancel"))[0] == 200
        answer = await client.receive_until(b'"request_cancelled"')
        assert answer.startswith(b"HTTP/1.1 499 ")
        gated.open()
        await server.quiet()
        _, after = await server.post(f"/v1/requests/{request_id}/cancel")
        assert (after["status"], after["outcome"]) == ("done", "cancelled")
        _, usage = await server.get(f"/v1/requests/{request_id}/usage")
        assert (usage["input_tokens"], usage["output_tokens"]) == (3, 2)


async def test_ids_are_ours_and_a_clients_label_is_echoed(serve: Any, says: Any) -> None:
    body = {"prompt": "x"}
    async with serve(says("Hi")) as server:
        ids = set()
        for _ in range(2):
            async with server.session.post(
                server.url + "/v1/completions", json=body, headers={"X-Request-Id": "abc"}
            ) as response:
                answer = await response.json()
                assert response.headers["X-Request-Id"] == "abc"
                assert response.headers["Plancha-Request-Id"] == answer["id"]
                assert answer["request_id"] == "abc"
                ids.add(answer["id"])
        assert len(ids) == 2
        assert (await server.get("/v1/requests/abc"))[0] == 404
        async with server.session.post(
            server.url + "/v1/completions",
            json={**body, "request_id": "body"},
            headers={"X-Request-Id": "header"},
        ) as response:
            assert response.headers["X-Request-Id"] == "body"


@pytest.mark.parametrize("label", ["x" * 129, "two words", "\xfcber"])
async def test_a_label_that_is_none_is_not_echoed(serve: Any, says: Any, label: str) -> None:
    async with (
        serve(says("Hi")) as server,
        server.session.post(
            server.url + "/v1/completions", json={"prompt": "x"}, headers={"X-Request-Id": label}
        ) as response,
    ):
        assert response.status == 200
        assert response.headers["X-Request-Id"] == (await response.json())["id"]


async def test_a_refusal_echoes_the_label_too(serve: Any, says: Any) -> None:
    async with (
        serve(says("Hi")) as server,
        server.session.post(
            server.url + "/v1/completions", json={}, headers={"X-Request-Id": "abc"}
        ) as response,
    ):
        assert (response.status, response.headers["X-Request-Id"]) == (400, "abc")
