"""Keys at every door: whose they are, and that nothing gets in, or out, without one."""

import hashlib
from typing import Any

import aiohttp
import openai
import orjson
import pytest

from plancha.access import Access
from plancha.testing.gate import GatedExecutor
from two_tenants import ASKS, SOCKET, A, B, as_subprotocol, ask, bearer, posted, sha, two_tenants

READS = ("/v1/models", "/v1/models/tiny", "/v1/requests/req-0", "/v1/requests/req-0/usage")
HEALTH = ("/health/live", "/health/ready", "/health/startup")


def refused(status: int, answer: Any) -> None:
    """401 in OpenAI's shape, with no word about the key."""
    assert (status, answer["error"]["code"]) == (401, "invalid_api_key")
    assert set(answer["error"]) == {"message", "type", "param", "code"}


async def test_without_a_key_only_health_is_told(serve: Any, says: Any) -> None:
    async with serve(says("Hi")) as server:
        server.gateway.access = two_tenants()
        for path, body in ASKS.items():
            refused(*await ask(server, "POST", path, body))
        for path in (*READS, SOCKET, "/nowhere", "/metrics"):
            refused(*await ask(server, "GET", path))
        refused(*await ask(server, "POST", "/v1/requests/req-0/cancel"))
        for path in HEALTH:
            assert (await ask(server, "GET", path))[0] == 200


async def test_what_tells_of_all_tenants_is_for_operators(serve: Any, says: Any) -> None:
    async with serve(says("Hi")) as server:
        server.gateway.access = Access(
            keys={sha(A): "a", sha(B): "b"}, anonymous=None, operators=frozenset({"b"})
        )
        status, answer = await ask(server, "GET", "/metrics", **bearer(A))
        assert (status, answer["error"]["code"]) == (403, "operators_only")
        assert (await ask(server, "GET", "/metrics", **bearer(B)))[0] == 200


async def test_a_key_opens_every_door_as_its_tenant(serve: Any, says: Any) -> None:
    async with serve(says("Hi")) as server:
        server.gateway.access = two_tenants()
        for key, tenant in ((A, "a"), (B, "b")):
            server.gateway._records.clear()
            for path, body in ASKS.items():
                assert (await ask(server, "POST", path, body, **bearer(key)))[0] == 200
            url = server.url + SOCKET
            async with server.session.ws_connect(url, headers=bearer(key)) as socket:
                await socket.send_json({"type": "generate", "id": "1", "prompt": "x"})
                while (await socket.receive_json())["type"] != "done":
                    pass
            records = server.gateway._records.values()
            assert [record.tenant for record in records] == [tenant] * 4


async def test_where_nobody_needs_a_key_any_will_do(serve: Any, says: Any) -> None:
    async with serve(says("Hi")) as server:
        for headers in ({}, bearer("EMPTY"), {"Authorization": "Basic eDp5"}):
            status, _ = await ask(server, "POST", "/v1/completions", ASKS["/generate"], **headers)
            assert status == 200


async def test_the_anonymous_get_in_where_they_are_named_but_not_with_a_wrong_key(
    serve: Any, says: Any
) -> None:
    async with serve(says("Hi")) as server:
        server.gateway.access = two_tenants(anonymous="guests")
        assert (await ask(server, "POST", "/v1/completions", ASKS["/generate"]))[0] == 200
        (record,) = server.gateway._records.values()
        assert record.tenant == "guests"
        refused(*await ask(server, "GET", "/v1/models", **bearer("wrong")))


WRONG = {
    "latin-1": b"Authorization: Bearer sk-\xfcber\r\n",
    "zero width space": b"Authorization: Bearer sk-test-a\xe2\x80\x8b\r\n",
    "smart quotes": b"Authorization: Bearer \xe2\x80\x9csk-test-a\xe2\x80\x9d\r\n",
    "empty": b"Authorization: Bearer\r\n",
    "empty with a space": b"Authorization: Bearer \r\n",
    "nothing at all": b"Authorization:\r\n",
    "two headers": b"Authorization: Bearer sk-test-a\r\nAuthorization: Bearer sk-test-a\r\n",
    "two words": b"Authorization: Bearer sk-test-a sk-test-a\r\n",
    "another scheme": b"Authorization: Basic sk-test-a\r\n",
    "no scheme": b"Authorization: sk-test-a\r\n",
    "a tab": b"Authorization: Bearer\tsk-test-a\r\n",
    "another header": b"X-Api-Key: sk-test-a\r\n",
    "another case": b"Authorization: Bearer SK-TEST-A\r\n",
    "over 4 KiB": b"Authorization: Bearer " + b"k" * 5000 + b"\r\n",
    "10 kB": b"Authorization: Bearer " + b"k" * 10_000 + b"\r\n",
}
RIGHT = {
    "as it should be": b"Authorization: Bearer sk-test-a\r\n",
    "lower case": b"authorization: bearer sk-test-a\r\n",
    "upper case and spaces": b"AUTHORIZATION:  BEARER   sk-test-a  \r\n",
}
UPGRADE = (
    b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)


def upgrading(headers: bytes) -> bytes:
    return b"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\n" + UPGRADE + headers + b"\r\n"


@pytest.mark.parametrize("form", [posted, upgrading])
@pytest.mark.parametrize("headers", WRONG.values(), ids=WRONG)
async def test_what_is_no_key_is_401_and_appears_nowhere(
    serve: Any,
    says: Any,
    connect: Any,
    capfd: Any,
    caplog: Any,
    headers: bytes,
    form: Any,
) -> None:
    caplog.set_level("DEBUG")
    async with serve(says("Hi")) as server, connect(server) as client:
        server.gateway.access = two_tenants()
        await client.send(form(headers))
        answer = await client.receive_until(b"}}" if len(headers) < 9000 else b"\r\n\r\n")
        assert server.gateway.running == 0 and not server.gateway._records
    head, _, body = answer.partition(b"\r\n\r\n")
    if len(headers) > 9000:  # the parser's own answer, and its own words
        assert head.split()[1] in (b"400", b"431")
    else:
        refused(int(head.split()[1]), orjson.loads(body))
        assert b"WWW-Authenticate: Bearer" in head
        assert b"sk-" not in answer.lower() and b"kkkk" not in answer
    for told in (*capfd.readouterr(), caplog.text):
        assert "sk-" not in told.lower() and "kkkk" not in told


@pytest.mark.parametrize("headers", RIGHT.values(), ids=RIGHT)
async def test_the_scheme_is_read_in_any_case(
    serve: Any, says: Any, connect: Any, capfd: Any, headers: bytes
) -> None:
    async with serve(says("Hi")) as server:
        server.gateway.access = two_tenants()
        for form, status in ((posted, b"200"), (upgrading, b"101")):
            async with connect(server) as client:
                await client.send(form(headers))
                answer = await client.receive_until(b"\r\n\r\n")
            assert answer.split()[1] == status
    assert "sk-" not in "".join(capfd.readouterr())


async def test_a_key_may_be_any_bytes_that_are_one_word(
    serve: Any, says: Any, connect: Any
) -> None:
    key = b"sk-\xfc\xe2\x80\x8b\xff" + b"k" * 4000
    async with serve(says("Hi")) as server, connect(server) as client:
        hashed = "sha256:" + hashlib.sha256(key).hexdigest()
        server.gateway.access = Access(keys={hashed: "a"}, anonymous=None)
        await client.send(posted(b"Authorization: Bearer " + key + b"\r\n"))
        assert (await client.receive_all()).startswith(b"HTTP/1.1 200 ")


async def test_a_browser_sends_its_key_as_a_subprotocol_and_never_gets_it_back(
    serve: Any, says: Any
) -> None:
    offers = ("plancha", as_subprotocol(A.encode()))
    async with serve(says("Hi")) as server:
        server.gateway.access = two_tenants()
        for protocols in (offers, offers[::-1]):
            url = server.url + SOCKET
            async with server.session.ws_connect(url, protocols=protocols) as socket:
                assert socket.protocol == "plancha"
                await socket.send_json({"type": "generate", "id": "1", "prompt": "x"})
                assert (await socket.receive_json())["type"] == "queued"
        assert {record.tenant for record in server.gateway._records.values()} == {"a"}


SUBPROTOCOLS = {
    "wrong": (401, f"plancha, {as_subprotocol(b'sk-test-c')}"),
    "empty": (401, "plancha, key."),
    "no base64": (401, "plancha, key.sk-test-a!"),
    "padded": (401, "plancha, key.c2stdGVzdC1h=="),
    "twice": (401, f"plancha, {as_subprotocol(A.encode())}, {as_subprotocol(A.encode())}"),
    "none": (401, "plancha"),
    "the key alone": (400, as_subprotocol(A.encode())),
    "another one": (400, f"graphql-ws, {as_subprotocol(A.encode())}"),
    "two headers": (
        400,
        f"{as_subprotocol(A.encode())}\r\nSec-WebSocket-Protocol: plancha",
    ),
}


@pytest.mark.parametrize(("status", "offer"), SUBPROTOCOLS.values(), ids=SUBPROTOCOLS)
async def test_another_offer_is_refused_before_the_upgrade_and_not_logged(
    serve: Any,
    says: Any,
    connect: Any,
    capfd: Any,
    caplog: Any,
    status: int,
    offer: str,
) -> None:
    caplog.set_level("DEBUG")
    async with serve(says("Hi")) as server, connect(server) as client:
        server.gateway.access = two_tenants()
        await client.send(upgrading(f"Sec-WebSocket-Protocol: {offer}\r\n".encode()))
        answer = await client.receive_until(b"}}")
    assert answer.split()[1] == str(status).encode()
    for told in (answer.decode(), "".join(capfd.readouterr()), caplog.text):
        assert "key." not in told and "c2st" not in told


async def test_a_key_in_two_ways_at_once_is_none(serve: Any, says: Any, connect: Any) -> None:
    offer = f"Sec-WebSocket-Protocol: plancha, {as_subprotocol(A.encode())}\r\n".encode()
    async with serve(says("Hi")) as server, connect(server) as client:
        server.gateway.access = two_tenants()
        await client.send(upgrading(offer + RIGHT["as it should be"]))
        assert (await client.receive_until(b"}}")).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("name", ["key", "api_key", "API_KEY", "apikey", "access_token"])
async def test_a_key_in_a_url_is_refused_with_the_way_to_send_it(
    serve: Any, says: Any, capfd: Any, name: str
) -> None:
    async with serve(says("Hi")) as server:
        for access in (Access(), two_tenants()):
            server.gateway.access = access
            for method, path in (("GET", "/v1/models"), ("POST", "/generate"), ("GET", SOCKET)):
                there = f"{path}?a=1&{name}={A}"
                status, answer = await ask(server, method, there, **bearer(A))
                assert (status, answer["error"]["code"]) == (400, "key_in_url")
                assert answer["error"]["param"] == name
                assert "Authorization: Bearer" in answer["error"]["message"]
                assert A not in str(answer)
    assert A not in "".join(capfd.readouterr())


async def test_an_open_socket_asks_nothing_more_once_its_key_is_withdrawn(
    serve: Any, emits: Any
) -> None:
    gated = GatedExecutor(emits(65, 257))
    async with serve(gated) as server:
        server.gateway.access = two_tenants()
        url = server.url + SOCKET
        async with server.session.ws_connect(url, headers=bearer(A)) as socket:
            await socket.send_json({"type": "generate", "id": "1", "prompt": "x"})
            await gated.started()
            server.gateway.access = Access(keys={sha(B): "b"}, anonymous=None)
            await socket.send_json({"type": "generate", "id": "2", "prompt": "x"})
            assert (await socket.receive_json())["type"] == "queued"
            second = await socket.receive_json()
            gated.open()
            while (last := await socket.receive_json())["type"] in ("token", "tokens"):
                pass
    assert (second["type"], second["id"]) == ("error", "2")
    assert second["error"]["code"] == "invalid_api_key"
    assert (last["type"], last["id"]) == ("done", "1")


async def test_openais_client_is_let_in_by_its_key_and_told_when_it_is_wrong(
    serve: Any, says: Any
) -> None:
    async with serve(says("Hi")) as server:
        server.gateway.access = two_tenants(b=())
        for key, error in (
            ("wrong", openai.AuthenticationError),
            (B, openai.NotFoundError),
            (A, None),
        ):
            async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key=key) as client:
                try:
                    answer = await client.completions.create(model="tiny", prompt="x")
                except openai.APIStatusError as refused:
                    assert error is not None and type(refused) is error
                else:
                    assert error is None and answer.choices[0].text == "Hi"


async def test_a_socket_is_refused_at_its_upgrade(serve: Any, says: Any) -> None:
    async with serve(says("Hi")) as server:
        server.gateway.access = two_tenants()
        for headers in ({}, bearer("wrong")):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await server.session.ws_connect(server.url + SOCKET, headers=headers)
            assert refused.value.status == 401
