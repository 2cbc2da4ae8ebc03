"""`timeout_s` and X-Request-Timeout: taken strictly, and kept, by a status or by an event."""

from typing import Any

import attrs
import pytest
from aiohttp import WSMsgType
from anyio import create_task_group

from plancha.failure import RequestFailed
from plancha.testing.embedded import embedded
from plancha.testing.gate import GatedExecutor
from plancha_text.byte_text import byte_text
from plancha_transports.asks import generate_ask

LONG = "x" * 100  # of 64 tokens that a step computes: the second step gives the first token
DOORS: dict[str, dict[str, Any]] = {
    "/generate": {"prompt": LONG},
    "/v1/completions": {"prompt": LONG},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": LONG}]},
}


@attrs.define(eq=False)
class Worker:
    """A kernel whose steps and whose clock a test holds in its hand."""

    gate: GatedExecutor
    now: float = 0.0


@pytest.mark.parametrize("value", [0, -1, True, "5", 86_401, [1]])
def test_a_field_that_is_no_timeout_is_refused_by_name(value: object) -> None:
    with pytest.raises(RequestFailed) as refused:
        generate_ask({"prompt": "x", "timeout_s": value}, None)
    failure = refused.value.failure
    assert (failure.kind, failure.param) == ("invalid", "timeout_s")
    assert "86400" in failure.message


@pytest.mark.parametrize(("value", "expected"), [(1, 1), (0.25, 0.25), (86_400, 86_400)])
def test_seconds_may_be_whole_or_not(value: float, expected: float) -> None:
    assert generate_ask({"prompt": "x", "timeout_s": value}, None).call.timeout_s == expected
    assert generate_ask({"prompt": "x", "timeout_s": None}, None).call.timeout_s is None


@pytest.mark.parametrize("path", DOORS)
@pytest.mark.parametrize("value", ["", "0", "-1", "1e3", "nan", "inf", "86401", "soon", "5, 6"])
async def test_a_header_that_is_no_timeout_is_refused_by_name(
    serve: Any, emits: Any, path: str, value: str
) -> None:
    async with serve(emits(65, 257)) as server:
        body = {**DOORS[path], "timeout_s": 5}
        status, answer = await server.post(path, body, **{"X-Request-Timeout": value})
        assert status == 400
        assert answer["error"]["param"] == "X-Request-Timeout"
        assert "X-Request-Timeout" in answer["error"]["message"]


async def played(
    listen: Any, emits: Any, path: str, body: Any, headers: dict[str, str], *, steps: int
) -> tuple[int, str]:
    """Status and text of a request in whose step after so many others three seconds pass."""
    worker = Worker(GatedExecutor(emits(65)))
    found: list[tuple[int, str]] = []
    async with (
        embedded(worker.gate, byte_text(), clock=lambda: worker.now) as kernel,
        listen(kernel.gateway, kernel) as server,
        create_task_group() as clients,
    ):

        async def client() -> None:
            async with server.session.post(
                server.url + path, json=body, headers=headers
            ) as response:
                found.append((response.status, await response.text()))

        clients.start_soon(client)
        await worker.gate.run(steps)
        await worker.gate.started()
        worker.now = 3.0
        worker.gate.commit()
        worker.gate.open()
    return found[0]


@pytest.mark.parametrize("path", DOORS)
@pytest.mark.parametrize("way", ["field", "header"])
async def test_a_request_that_takes_too_long_for_its_first_token_is_504(
    listen: Any, emits: Any, path: str, way: str
) -> None:
    field = {"timeout_s": 2.5} if way == "field" else {}
    header = {"X-Request-Timeout": "2.5"} if way == "header" else {}
    body = {**DOORS[path], **field, "max_tokens": 9}
    if path != "/generate":
        body["stream"] = True
    status, text = await played(listen, emits, path, body, header, steps=0)
    assert status == 504 and '"code":"request_timeout"' in text and "2.5 s" in text


async def test_a_whole_answer_that_takes_too_long_is_504(listen: Any, emits: Any) -> None:
    body = {**DOORS["/v1/completions"], "max_tokens": 9, "timeout_s": 1}
    status, text = await played(listen, emits, "/v1/completions", body, {}, steps=4)
    assert status == 504 and '"code":"request_timeout"' in text


@pytest.mark.parametrize("path", DOORS)
async def test_a_stream_that_has_begun_ends_with_one_error_and_nothing_after_it(
    listen: Any, emits: Any, path: str
) -> None:
    body = {**DOORS[path], "max_tokens": 9, "timeout_s": 1}
    if path != "/generate":
        body["stream"] = True
    status, text = await played(listen, emits, path, body, {}, steps=4)
    assert status == 200 and text.count('"code":"request_timeout"') == 1
    assert "request_timeout" in text.strip().split("\n\n")[-1]
    assert "[DONE]" not in text and "event: done" not in text


async def test_the_body_goes_before_the_header(listen: Any, emits: Any) -> None:
    body = {**DOORS["/v1/completions"], "max_tokens": 9, "timeout_s": 100}
    headers = {"X-Request-Timeout": "1"}
    status, _ = await played(listen, emits, "/v1/completions", body, headers, steps=4)
    assert status == 200


async def test_a_socket_request_ends_with_an_error_message_and_the_socket_lives_on(
    listen: Any, emits: Any
) -> None:
    worker = Worker(GatedExecutor(emits(65)))
    async with (
        embedded(worker.gate, byte_text(), clock=lambda: worker.now) as kernel,
        listen(kernel.gateway, kernel) as server,
        server.session.ws_connect(server.url + "/v1/stream") as socket,
    ):
        ask = {"type": "generate", "prompt": "x", "max_tokens": 9}
        await socket.send_json({**ask, "id": "slow", "timeout_s": 2})
        await worker.gate.started()
        worker.now = 3.0
        worker.gate.open()
        messages = [await socket.receive_json()]
        while messages[-1]["type"] not in ("error", "done"):
            messages.append(await socket.receive_json())
        assert messages[-1]["error"]["code"] == "request_timeout"
        await socket.send_json({**ask, "id": "next"})
        while (message := await socket.receive()).type is WSMsgType.TEXT:
            if message.json()["type"] == "done":
                break
        assert message.json()["id"] == "next"
