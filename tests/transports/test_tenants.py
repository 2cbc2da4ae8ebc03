"""One tenant beside another: what is the one's is nothing to the other."""

from typing import Any

from plancha.testing.gate import GatedExecutor
from two_tenants import ASKS, A, B, ask, bearer, posted, two_tenants


async def test_one_tenant_neither_sees_nor_stops_what_is_anothers(
    serve: Any, emits: Any, connect: Any
) -> None:
    gated = GatedExecutor(emits(65, 66, 67, 257))
    label = b"X-Request-Id: abc\r\n"
    async with serve(gated) as server, connect(server) as one, connect(server) as other:
        server.gateway.access = two_tenants()
        await one.send(posted(f"Authorization: Bearer {A}\r\n".encode() + label))
        await gated.run(1)
        await gated.started()
        await other.send(posted(f"Authorization: Bearer {B}\r\n".encode() + label))
        while len(server.gateway._records) < 2:
            await server.get("/health/live")
        first, second = server.gateway._records
        assert first != second
        absent = await ask(server, "GET", "/v1/requests/req-0", **bearer(B))
        for request, owner, stranger in ((first, A, B), (second, B, A)):
            for path in ("", "/usage"):
                there = f"/v1/requests/{request}{path}"
                assert (await ask(server, "GET", there, **bearer(owner)))[0] == 200
                assert await ask(server, "GET", there, **bearer(stranger)) == absent
            there = f"/v1/requests/{request}/cancel"
            assert await ask(server, "POST", there, **bearer(stranger)) == absent
        assert absent[0] == 404
        for key in (A, B):
            assert (await ask(server, "GET", "/v1/requests/abc", **bearer(key)))[0] == 404
        gated.open()
        for client in (one, other):
            answer = await client.receive_all()
            assert answer.startswith(b"HTTP/1.1 200 ") and b"ABC" in answer
            assert b"X-Request-Id: abc" in answer


async def test_what_one_tenant_asked_is_in_no_other_ones_cache(serve: Any, chains: Any) -> None:
    body = {"prompt": "x" * 160, "max_tokens": 1}

    async def cached(server: Any, key: str, **fields: str) -> tuple[int, int]:
        """Cached tokens as told, and the steps that the answer took."""
        before = server.kernel.planner._steps
        _, answer = await ask(server, "POST", "/v1/completions", {**body, **fields}, **bearer(key))
        steps = server.kernel.planner._steps - before
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"], steps

    async with serve(chains()) as server:
        server.gateway.access = two_tenants()
        cold = await cached(server, A)
        again = await cached(server, A)
        other = await cached(server, B)
        posing = await cached(server, B, cache_salt="a")
    assert cold == other == posing == (0, 3)  # 160 tokens, 64 in a step
    assert again == ((160 - 1) // 16 * 16, 1)


async def test_a_model_that_a_tenant_may_not_use_does_not_exist(serve: Any, says: Any) -> None:
    async with serve(says("Hi")) as server:
        server.gateway.access = two_tenants(a=("tiny",), b=("large",))
        _, listed = await ask(server, "GET", "/v1/models", **bearer(A))
        assert [model["id"] for model in listed["data"]] == ["tiny"]
        assert (await ask(server, "GET", "/v1/models/tiny", **bearer(A)))[0] == 200

        _, listed = await ask(server, "GET", "/v1/models", **bearer(B))
        assert listed["data"] == []
        tiny, large = [
            await ask(server, "GET", f"/v1/models/{name}", **bearer(B))
            for name in ("tiny", "large")
        ]
        assert tiny == large and tiny[0] == 404
        for path, body in ASKS.items():
            told = []
            for model in ("tiny", "huge"):
                asked = dict(body) | {"model": model}
                status, answer = await ask(server, "POST", path, asked, **bearer(B))
                assert (status, answer["error"]["code"]) == (404, "model_not_found")
                told.append(answer["error"]["message"].replace(model, "?"))
            assert told[0] == told[1]
            status, answer = await ask(server, "POST", path, body, **bearer(B))
            assert (status, answer["error"]["code"]) == (404, "model_not_found")
            assert "tiny" not in str(answer)
            assert (await ask(server, "POST", path, body, **bearer(A)))[0] == 200
