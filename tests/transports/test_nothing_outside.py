"""No request reaches a file, a template or a URL: what looks like one is text, or refused."""

from typing import Any

import pytest

HI = {"role": "user", "content": "Hi?"}
OUTSIDE = [
    "file:///etc/passwd",
    "http://127.0.0.1:1/x",
    "/etc/passwd",
    "../../etc/passwd",
    "~/.ssh",
]


@pytest.mark.parametrize("outside", OUTSIDE)
@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file", "video_url"])
async def test_parts_that_would_be_fetched_are_refused_unfetched(
    serve: Any, says: Any, kind: str, outside: str
) -> None:
    part = {"type": kind, kind: {"url": outside, "file_id": outside, "data": outside}}
    async with serve(says("Hi")) as server:
        for parts in ([part], [{"type": "text", "text": "x"}, part]):
            body = {"messages": [{"role": "user", "content": parts}]}
            for path in ("/v1/chat/completions", "/generate"):
                status, error = await server.refusal(path, body)
                assert status == 400
                assert error["param"].endswith(".type")
                assert outside not in error["message"]


@pytest.mark.parametrize(
    "fields",
    [
        {"chat_template": "{% include '/etc/passwd' %}"},
        {"chat_template_kwargs": {"x": "{{ 7 * 7 }}"}},
        {"tools": [{"type": "function", "function": {"name": "x"}}]},
        {"web_search_options": {}},
        {"audio": {"voice": "x"}},
        {"lora_path": "/etc"},
        {"documents": [{"text": "x"}]},
        {"add_generation_prompt": False},
    ],
)
async def test_what_would_change_the_template_is_refused(
    serve: Any, says: Any, fields: dict[str, Any]
) -> None:
    async with serve(says("Hi")) as server:
        for path in ("/v1/chat/completions", "/generate"):
            status, error = await server.refusal(path, {"messages": [HI], **fields})
            assert (status, error["param"]) == (400, next(iter(fields)))


async def test_a_template_in_a_message_is_text(serve: Any, says: Any) -> None:
    async with serve(says("Hi")) as server:
        counts = []
        for content in ("{{ 7 * 7 }}{% set x = 1 %}", "x" * len("{{ 7 * 7 }}{% set x = 1 %}")):
            body = {"messages": [{"role": "user", "content": content}], "max_tokens": 2}
            _, answer = await server.post("/v1/chat/completions", body)
            counts.append(answer["usage"]["prompt_tokens"])
    assert counts[0] == counts[1]


@pytest.mark.parametrize("outside", OUTSIDE)
async def test_a_model_is_a_name_and_never_a_place(serve: Any, says: Any, outside: str) -> None:
    async with serve(says("Hi")) as server:
        status, error = await server.refusal("/v1/completions", {"model": outside, "prompt": "x"})
        assert (status, error["code"]) == (404, "model_not_found")


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/v1/models/..%2f..%2f..%2fetc%2fpasswd",
        "/v1/models//etc/passwd",
        "/v1/models/file:%2f%2f%2fetc%2fpasswd",
        "/v1/requests/..%2f..%2fetc%2fpasswd/usage",
        "/static/../plugins.toml",
        "/plugins.toml",
        "/.git/config",
        "//evil.example/x",
        "http://evil.example/v1/models",
    ],
)
async def test_addresses_lead_to_doors_and_nowhere_else(
    serve: Any, says: Any, connect: Any, path: str
) -> None:
    async with serve(says("Hi")) as server, connect(server) as client:
        await client.send(
            b"GET %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % path.encode()
        )
        answer = await client.receive_all()
    if path.startswith("http://"):  # a proxy's way of asking: the door counts, not the name
        assert b'"object":"list"' in answer
    else:
        assert answer.split()[1] in (b"404", b"400"), answer
    assert b"root:" not in answer
    assert b"location:" not in answer.lower()


async def test_models_invented_by_clients_leave_no_trace(serve: Any, says: Any) -> None:
    async with serve(says("Hi")) as server:
        for model in ("tiny", "m-0", None):  # one answer of each status
            await server.post("/v1/completions", {"model": model, "prompt": "x"})
        await metrics(server)
        before = await metrics(server)
        for number in range(300):
            name = f"m-{number}" if number else "x" * 10_000
            status, error = await server.refusal("/v1/completions", {"model": name, "prompt": "x"})
            assert (status, error["code"]) == (404, "model_not_found")
            assert len(error["message"]) < 300
        for name in ("", "../tiny", "TINY"):
            assert (await server.refusal("/v1/completions", {"model": name, "prompt": "x"}))[
                0
            ] == 404
        assert (await server.refusal("/v1/completions", {"model": None, "prompt": "x"}))[0] == 400
        after = await metrics(server)
    assert after == before


async def metrics(server: Any) -> set[str]:
    """Names and labels of every series."""
    async with server.session.get(server.url + "/metrics") as response:
        lines = (await response.text()).splitlines()
    return {line.rpartition(" ")[0] for line in lines if not line.startswith("#")}
