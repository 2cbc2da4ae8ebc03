"""Which web pages may call."""

from typing import Any

import aiohttp
import pytest

BODY = {"prompt": "x"}


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://["]
)
async def test_a_foreign_page_may_neither_post_nor_connect(
    serve: Any, says: Any, origin: str
) -> None:
    async with serve(says("Hi")) as server:
        status, answer = await server.post("/v1/completions", BODY, Origin=origin)
        assert (status, answer["error"]["code"]) == (403, "origin_not_allowed")
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await server.session.ws_connect(server.url + "/v1/stream", headers={"Origin": origin})
        assert refused.value.status == 403


async def test_a_page_from_here_may(serve: Any, says: Any) -> None:
    async with serve(says("Hi")) as server:
        status, _ = await server.post("/v1/completions", BODY, Origin=server.url)
        assert status == 200
        url = server.url + "/v1/stream"
        async with server.session.ws_connect(url, headers={"Origin": server.url}):
            pass


async def test_a_named_page_may_and_can_read_its_answer(serve: Any, says: Any) -> None:
    page = "https://chat.example"
    async with serve(says("Hi"), allowed_origins=[page]) as server:
        async with server.session.options(
            server.url + "/v1/completions",
            headers={"Origin": page, "Access-Control-Request-Method": "POST"},
        ) as preflight:
            assert preflight.status == 204
            assert preflight.headers["Access-Control-Allow-Origin"] == page
            assert "Content-Type" in preflight.headers["Access-Control-Allow-Headers"]
        async with server.session.post(
            server.url + "/v1/completions", json={**BODY, "stream": True}, headers={"Origin": page}
        ) as response:
            assert response.status == 200
            assert response.headers["Access-Control-Allow-Origin"] == page
        status, _ = await server.post("/v1/completions", BODY, Origin="https://evil.example")
        assert status == 403
