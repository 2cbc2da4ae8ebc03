"""When trying again may do, told where no header can tell it: in an event or a message."""

from typing import Any

import anyio
import jsonschema_rs
import orjson
import pytest

from plancha.testing.embedded import Limits
from plancha.testing.gate import GatedExecutor
from plancha_transports.openapi import document
from plancha_transports.options import HttpOptions

LATE = Limits(max_sequences=1, queue_timeout_s=0.05)
STREAMS = [
    ("/generate", {"prompt": "x", "max_tokens": 4}, "ErrorEvent"),
    ("/v1/completions", {"prompt": "x", "max_tokens": 4, "stream": True}, "CompletionEvent"),
    (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "x"}], "max_tokens": 4, "stream": True},
        "ChatCompletionEvent",
    ),
]


def is_as_described(schema: str, data: Any) -> bool:
    described = document(HttpOptions(), needs_key=False)
    schemas = {"$ref": f"#/components/schemas/{schema}", "components": described["components"]}
    return jsonschema_rs.validator_for(schemas).is_valid(data)


@pytest.mark.parametrize(("path", "body", "schema"), STREAMS)
async def test_an_error_event_says_what_a_retry_after_header_would_have(
    serve: Any, emits: Any, path: str, body: Any, schema: str
) -> None:
    gate = GatedExecutor(emits(65))
    async with (
        serve(gate, limits=LATE, headers_after_s=0) as server,
        anyio.create_task_group() as clients,
    ):
        clients.start_soon(server.events, *STREAMS[0][:2])
        await gate.started()
        ((_, last),) = await server.events(path, body)  # behind the one that holds the only slot
        assert (last["error"]["type"], last["error"]["code"]) == ("server_error", "queue_timeout")
        assert type(last["error"]["retry_after_s"]) is int
        assert last["error"]["retry_after_s"] >= 1
        assert is_as_described(schema, last)
        gate.open()


async def test_a_socket_says_it_of_what_it_refuses_and_of_what_breaks_off(
    serve: Any, emits: Any
) -> None:
    gate = GatedExecutor(emits(65))
    async with (
        serve(gate, limits=LATE, ws_max_requests=2) as server,
        server.session.ws_connect(server.url + "/v1/stream") as socket,
    ):
        errors: dict[str, Any] = {}
        await socket.send_json({"type": "generate", "id": "wrong", "prompt": 5})
        await socket.send_json({"type": "generate", "id": "runs", "prompt": "x", "max_tokens": 4})
        await gate.started()
        for name in ("waits", "third"):
            await socket.send_json({"type": "generate", "id": name, "prompt": "x", "max_tokens": 4})
        while len(errors) < 3:
            message = orjson.loads((await socket.receive()).data)
            assert is_as_described("SocketMessage", message), message
            if message["type"] == "error":
                errors[message["id"]] = message["error"]
        assert errors["waits"]["code"] == "queue_timeout"
        assert errors["waits"]["retry_after_s"] >= 1
        assert errors["third"]["code"] == "too_many_requests"
        assert errors["third"]["retry_after_s"] == 1
        assert "retry_after_s" not in errors["wrong"]  # as it is, it will never do
        gate.open()


async def test_a_plain_answer_says_it_in_its_header_and_nowhere_else(
    serve: Any, emits: Any
) -> None:
    gate = GatedExecutor(emits(65))
    async with serve(gate, limits=LATE) as server, anyio.create_task_group() as clients:
        clients.start_soon(server.events, *STREAMS[0][:2])
        await gate.started()
        path, body, _ = STREAMS[1]
        async with server.session.post(server.url + path, json=body) as response:
            assert response.status == 503
            assert int(response.headers["Retry-After"]) >= 1
            error = orjson.loads(await response.read())["error"]
        assert set(error) == {"message", "type", "param", "code"}
        gate.open()
