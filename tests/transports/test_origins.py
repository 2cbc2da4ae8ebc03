"""Which web pages may call, and by which names the server is called."""

import hashlib
from typing import Any

import aiohttp
import pytest

from plancha.access import Access

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


PAGE = "https://chat.example"
KEY = "sk-test-a"


def keyed() -> Access:
    return Access(keys={"sha256:" + hashlib.sha256(KEY.encode()).hexdigest(): "a"}, anonymous=None)


def names(header: str) -> set[str]:
    return {name.strip().lower() for name in header.split(",")}


async def test_a_preflight_needs_no_key_and_lets_a_named_page_send_one(
    serve: Any, says: Any
) -> None:
    """What a browser sends before a POST with a key, by the Fetch standard, section 4.8."""
    async with serve(says("Hi"), allowed_origins=[PAGE]) as server:
        server.gateway.access = keyed()
        async with server.session.options(
            server.url + "/v1/chat/completions",
            headers={
                "Origin": PAGE,
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os",
            },
        ) as preflight:
            allowed = names(preflight.headers["Access-Control-Allow-Headers"])
            assert preflight.status == 204
            assert preflight.headers["Access-Control-Allow-Origin"] == PAGE
            assert "Access-Control-Allow-Credentials" not in preflight.headers
            assert {"authorization", "content-type", "*"} <= allowed
            assert {"GET", "POST"} <= {
                each.upper() for each in names(preflight.headers["Access-Control-Allow-Methods"])
            }
            assert preflight.headers["Vary"] == "Origin"
            assert await preflight.read() == b""


async def test_a_named_page_can_read_its_refusals_and_when_to_come_back(
    serve: Any, says: Any
) -> None:
    async with serve(says("Hi"), allowed_origins=[PAGE]) as server:
        server.gateway.access = keyed()
        url = server.url + "/v1/completions"
        right = {"Origin": PAGE, "Authorization": f"Bearer {KEY}"}
        async with server.session.post(url, json=BODY, headers=right) as response:
            assert response.status == 200
        server.gateway.refuse("draining", "it is shutting down")
        for headers, status, readable in (
            ({"Origin": PAGE}, 401, "WWW-Authenticate"),
            (right, 503, "Retry-After"),
        ):
            async with server.session.post(url, json=BODY, headers=headers) as response:
                assert response.status == status
                assert response.headers["Access-Control-Allow-Origin"] == PAGE
                assert readable in response.headers
                assert readable.lower() in names(response.headers["Access-Control-Expose-Headers"])


async def test_another_pages_preflight_is_refused_and_it_can_read_nothing(
    serve: Any, says: Any
) -> None:
    async with serve(says("Hi"), allowed_origins=[PAGE]) as server:
        headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
        async with server.session.options(server.url + "/generate", headers=headers) as answer:
            assert answer.status == 403
            assert not [name for name in answer.headers if name.startswith("Access-Control")]
        async with server.session.get(server.url + "/v1/models", headers=headers) as answer:
            assert not [name for name in answer.headers if name.startswith("Access-Control")]
            assert answer.headers["Vary"] == "Origin"


OURS = ["localhost", "LOCALHOST:8000", "127.0.0.1", "127.9.9.9:1", "[::1]", "[::1]:8000"]
OTHERS = [
    "evil.example",
    "evil.example:8000",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "10.0.0.1",
    "[::2]",
    "0.0.0.0",
    "evil@localhost",
    "localhost:8000:8000",
    "",
    " ",
]


async def called(server: Any, client: Any, host: str | None, line: str, more: str = "") -> int:
    """The status of a request under that name."""
    named = "" if host is None else f"Host: {host}\r\n"
    await client.send(f"{line} HTTP/1.1\r\n{named}{more}\r\n".encode())
    return int((await client.receive_until(b"\r\n\r\n")).split()[1])


UPGRADE = (
    "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)
CANCEL = "POST /v1/requests/req-0/cancel"


@pytest.mark.parametrize("host", OURS)
async def test_on_loopback_it_answers_to_its_own_names(
    serve: Any, says: Any, connect: Any, host: str
) -> None:
    async with serve(says("Hi")) as server:
        for line, more, status in (
            ("GET /v1/models", "", 200),
            (CANCEL, "", 404),
            ("GET /v1/stream", UPGRADE, 101),
        ):
            async with connect(server) as client:
                assert await called(server, client, host, line, more) == status


@pytest.mark.parametrize("host", OTHERS)
async def test_on_loopback_a_page_that_was_bound_to_it_anew_gets_nothing(
    serve: Any, says: Any, connect: Any, host: str
) -> None:
    """The page's name resolves to 127.0.0.1 by now, so its origin and the Host are the same."""
    origin = f"Origin: http://{host.strip() or 'x'}\r\n"
    async with serve(says("Hi")) as server:
        for line, more in (
            ("GET /v1/models", origin),
            (CANCEL, origin),
            (CANCEL, ""),
            ("GET /v1/stream", origin + UPGRADE),
        ):
            async with connect(server) as client:
                status = await called(server, client, host, line, more)
                assert status == 403 or (status == 400 and not host.strip())
        async with connect(server) as client:
            assert await called(server, client, host, "GET /health/live") in (200, 400)


async def test_the_operator_can_add_names(serve: Any, says: Any, connect: Any) -> None:
    async with serve(says("Hi"), allowed_hosts=["LLM.example", "::2"]) as server:
        for host, status in (
            ("llm.example", 200),
            ("llm.EXAMPLE:443", 200),
            ("[::2]:80", 200),
            ("localhost", 200),
            ("www.llm.example", 403),
        ):
            async with connect(server) as client:
                assert await called(server, client, host, "GET /v1/models") == status


@pytest.mark.parametrize(("allowed", "status"), [([], 200), (["llm.example"], 403)])
async def test_beyond_loopback_any_name_will_do_until_some_are_listed(
    serve: Any, says: Any, connect: Any, allowed: list[str], status: int
) -> None:
    async with serve(says("Hi"), host="0.0.0.0", allowed_hosts=allowed) as server:
        for host, expected in (("other.example", status), ("llm.example", 200)):
            async with connect(server) as client:
                assert await called(server, client, host, "GET /v1/models") == expected
