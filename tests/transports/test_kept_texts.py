"""/v1/requests/{id}/text: what is kept, for whom, and its deletion."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from plancha.access import Access, key_hash
from plancha.testing.gate import GatedExecutor
from plancha_texts.hashing import Secrets
from plancha_texts.keeper import TextKeeper
from plancha_texts.retention import Policy, Retention
from plancha_transports.openapi import document
from plancha_transports.options import HttpOptions

KEYS = {f"sk-{tenant}": tenant for tenant in ("a", "b", "boss")}
ACCESS = Access(
    keys={key_hash(key.encode()): tenant for key, tenant in KEYS.items()},
    anonymous=None,
    operators=frozenset({"boss"}),
)


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Callable[..., TextKeeper]]:
    made: list[TextKeeper] = []

    def make(**settings: Retention) -> TextKeeper:
        secrets = Secrets(tmp_path / "secrets")
        made.append(TextKeeper(tmp_path / "texts.db", secrets, Policy(settings)))
        return made[-1]

    yield make
    for each in made:
        each.close()


async def asked(server: Any, path: str, tenant: str, method: str = "GET") -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer sk-{tenant}"}
    async with server.session.request(method, server.url + path, headers=headers) as response:
        return response.status, await response.json()


async def completed(server: Any, tenant: str, body: Any, path: str = "/v1/completions") -> str:
    headers = {"Authorization": f"Bearer sk-{tenant}"}
    async with server.session.post(server.url + path, json=body, headers=headers) as response:
        await response.read()
        assert response.status == 200
        return str(response.headers["Plancha-Request-Id"])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompts", [["One?", "Two?"], [[50, 51], [52]]], ids=["texts", "ids"])
async def test_the_owner_reads_what_was_sent_and_what_was_answered(
    serve: Any, says: Any, keeper: Any, stream: bool, prompts: Any
) -> None:
    async with serve(says("Hello there")) as server:
        server.gateway.access, server.gateway.texts = ACCESS, keeper(a=30)
        body = {"prompt": prompts, "max_tokens": 50, "stream": stream}
        request = await completed(server, "a", body)
        status, kept = await asked(server, f"/v1/requests/{request}/text", "a")

    assert status == 200
    until = kept.pop("kept_until")
    assert until == kept.pop("created") + 30 * 24 * 60 * 60
    assert kept == {
        "id": request,
        "object": "request.text",
        "tenant": "a",
        "model": "tiny",
        "kept": "texts",
        "prompts": prompts,
        "messages": None,
        "outputs": ["Hello there", "Hello there"],
    }


@pytest.mark.parametrize("path", ["/generate", "/v1/chat/completions"])
async def test_a_chat_is_kept_as_its_messages_and_up_to_the_stop_string(
    serve: Any, says: Any, keeper: Any, path: str
) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    body = {"messages": messages, "stop": ["END"], "max_tokens": 40}
    async with serve(says("All of itENDand more")) as server:
        server.gateway.access, server.gateway.texts = ACCESS, keeper(a=1)
        request = await completed(server, "a", body, path)
        status, kept = await asked(server, f"/v1/requests/{request}/text", "a")

    assert (status, kept["messages"], kept["prompts"]) == (200, messages, [])
    assert kept["outputs"] == ["All of it"]


async def test_for_others_it_does_not_exist_and_operators_may_see_it(
    serve: Any, says: Any, keeper: Any
) -> None:
    async with serve(says("Hello")) as server:
        server.gateway.access, server.gateway.texts = ACCESS, keeper(a=30, b=30, boss=30)
        request = await completed(server, "a", {"prompt": "secret"})
        place, nowhere = f"/v1/requests/{request}/text", "/v1/requests/req-unknown/text"
        for method in ("GET", "DELETE"):
            assert await asked(server, place, "b", method) == await asked(
                server, nowhere, "b", method
            )
            status, answer = await asked(server, place, "b", method)
            assert (status, answer["error"]["code"]) == (404, "request_not_found")
        assert (await asked(server, place, "boss"))[1]["prompts"] == ["secret"]
        assert (await asked(server, place, "boss", "DELETE"))[0] == 200
        status, answer = await asked(server, place, "a")
        assert (status, answer["error"]["code"]) == (404, "text_not_kept")


async def test_what_is_deleted_is_gone_and_the_request_is_known_all_the_same(
    serve: Any, says: Any, keeper: Any, tmp_path: Path
) -> None:
    async with serve(says("Hello")) as server:
        server.gateway.access, server.gateway.texts = ACCESS, keeper(a=30)
        request = await completed(server, "a", {"prompt": "canary"})
        place = f"/v1/requests/{request}"
        status, answer = await asked(server, f"{place}/text", "a", "DELETE")
        assert (status, answer) == (
            200,
            {"id": request, "object": "request.text", "deleted": True},
        )
        for method in ("DELETE", "GET"):
            status, answer = await asked(server, f"{place}/text", "a", method)
            assert (status, answer["error"]["code"]) == (404, "text_not_kept")
        assert (await asked(server, f"{place}/usage", "a"))[1]["output_tokens"] == 6

    found = b"".join(Path(entry.path).read_bytes() for entry in os.scandir(tmp_path))  # noqa: ASYNC240
    assert b"canary" not in found and b"Hello" not in found


async def test_where_nothing_is_kept_the_owner_is_told_so(
    serve: Any, says: Any, keeper: Any
) -> None:
    async with serve(says("Hello")) as server:
        server.gateway.access = ACCESS
        for texts in (server.gateway.texts, keeper(a="none", b=30)):
            server.gateway.texts = texts
            request = await completed(server, "a", {"prompt": "canary"})
            for method, tenant in (("GET", "a"), ("DELETE", "a"), ("GET", "boss")):
                status, answer = await asked(server, f"/v1/requests/{request}/text", tenant, method)
                assert (status, answer["error"]["code"]) == (404, "text_not_kept")


async def test_hashes_tell_equal_texts_of_one_tenant_alone(
    serve: Any, says: Any, keeper: Any
) -> None:
    async with serve(says("Hello")) as server:
        server.gateway.access, server.gateway.texts = ACCESS, keeper(a="hash", b="hash")
        seen = []
        for tenant, prompt in (("a", "one"), ("a", "one"), ("a", "two"), ("b", "one")):
            request = await completed(server, tenant, {"prompt": prompt})
            seen.append((await asked(server, f"/v1/requests/{request}/text", tenant))[1])

    first, again, other, foreign = seen
    assert (first["kept"], first["kept_until"]) == ("hashes", None)
    assert first["prompts"] == again["prompts"] != other["prompts"]
    assert first["outputs"] == again["outputs"] == other["outputs"] != foreign["outputs"]
    assert foreign["prompts"] != first["prompts"]
    described = document(HttpOptions(), needs_key=True)
    schema = {"$ref": "#/components/schemas/RequestText", "components": described["components"]}
    assert jsonschema_rs.validator_for(schema).is_valid(first)


async def test_a_request_that_runs_has_no_text_yet_and_one_that_broke_off_what_it_had(
    serve: Any, chains: Any, keeper: Any
) -> None:
    executor = GatedExecutor(chains())
    headers = {"Authorization": "Bearer sk-a"}
    async with serve(executor) as server:
        server.gateway.access, server.gateway.texts = ACCESS, keeper(a=30)
        body = {"prompt": "Once", "max_tokens": 100, "ignore_eos": True}
        async with server.session.post(
            server.url + "/generate", json=body, headers=headers
        ) as response:
            executor.commit(8)
            event = b""
            while event.count(b"data: ") < 5:
                event += await response.content.readany()
            request = response.headers["Plancha-Request-Id"]
            place = f"/v1/requests/{request}/text"
            status, answer = await asked(server, place, "a")
            assert (status, answer["error"]["code"]) == (404, "request_running")
            await asked(server, f"/v1/requests/{request}/cancel", "a", "POST")
            executor.open()
            await response.read()
        status, kept = await asked(server, place, "a")

    assert status == 200
    assert kept["prompts"] == ["Once"]
    assert len(kept["outputs"][0]) >= 4


async def test_a_request_that_was_refused_is_kept_nowhere(
    serve: Any, says: Any, keeper: Any
) -> None:
    class Counting(TextKeeper):
        kept = 0

        def keep(self, exchange: Any) -> None:
            self.kept += 1

    async with serve(says("Hello")) as server:
        keeping = keeper(a=30)
        counting = Counting(keeping.path, None, keeping.policy)
        server.gateway.access, server.gateway.texts = ACCESS, counting
        status, _ = await server.post(
            "/v1/completions",
            {"prompt": "x", "max_tokens": 100_000},
            Authorization="Bearer sk-a",
        )
        assert (status, counting.kept) == (400, 0)
        await completed(server, "a", {"prompt": "x"})
        counting.close()

    assert counting.kept == 1


async def test_a_store_that_cannot_be_read_is_503(
    serve: Any, says: Any, keeper: Any, tmp_path: Path
) -> None:
    async with serve(says("Hello")) as server:
        server.gateway.access, server.gateway.texts = ACCESS, keeper(a=30)
        server.gateway.texts.path = tmp_path
        status, answer = await asked(server, "/v1/requests/req-1/text", "a")

    assert (status, answer["error"]["code"]) == (503, "texts_locked")
    assert str(tmp_path) not in str(answer)


async def test_without_retention_a_stream_goes_the_short_way(
    serve: Any, says: Any, keeper: Any
) -> None:
    async with serve(says("Hello")) as server:
        server.gateway.access, server.gateway.texts = ACCESS, keeper(a=30)
        seen = []
        accept = server.gateway._accept

        def spy(*args: Any) -> Any:
            seen.append(accept(*args))
            return seen[-1]

        server.gateway._accept = spy
        for tenant in ("a", "b"):
            await completed(server, tenant, {"prompt": "x"})

    assert [each.streams[0].plain for each in seen] == [False, True]
    assert [each.transcript is None for each in seen] == [False, True]
