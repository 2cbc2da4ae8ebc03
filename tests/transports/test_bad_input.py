"""What clients get wrong: a clear refusal each time, and a server that goes on."""

import io
from typing import Any

import anyio
import orjson
import pytest

PATHS = ["/v1/completions", "/v1/chat/completions", "/generate"]
GOOD = {"prompt": "x", "max_tokens": 2}


async def sent(server: Any, path: str, body: bytes, content_type: str | None) -> tuple[int, Any]:
    headers = {} if content_type is None else {"Content-Type": content_type}
    skip = ["Content-Type"]
    async with server.session.post(
        server.url + path, data=io.BytesIO(body), headers=headers, skip_auto_headers=skip
    ) as response:
        assert response.content_type == "application/json"
        answer = orjson.loads(await response.read())
        assert set(answer["error"]) == {"message", "type", "param", "code"}
        return response.status, answer["error"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "body",
    [b"[]", b"true", b"null", b"123", b'"abc"', b"{", b"", b"[" * 20_000, b"{} {}", b'{"a":NaN}'],
)
async def test_a_body_that_is_no_json_object_is_refused(
    serve: Any, emits: Any, path: str, body: bytes
) -> None:
    async with serve(emits(65)) as server:
        status, error = await sent(server, path, body, "application/json")
        assert (status, error["type"]) == (400, "invalid_request_error")
        status, _ = await server.post("/v1/completions", GOOD)
        assert status == 200


@pytest.mark.parametrize(
    "content_type",
    [None, "text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-16"],
)
async def test_another_content_type_is_refused_and_the_connection_goes_on(
    serve: Any, emits: Any, connect: Any, content_type: str | None
) -> None:
    good = orjson.dumps(GOOD)
    named = f"Content-Type: {content_type}\r\n" if content_type else ""
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(good)}\r\n"
    async with serve(emits(65)) as server, connect(server) as client:
        await client.send(f"{head}{named}\r\n".encode() + good)
        refused = await client.receive_until(b'"unsupported_media_type"')
        assert refused.startswith(b"HTTP/1.1 415 ")
        await client.send(f"{head}Content-Type: application/json\r\n\r\n".encode() + good)
        assert b"HTTP/1.1 200 " in await client.receive_until(b'"total_tokens"')


async def test_a_charset_that_says_utf8_is_fine(serve: Any, emits: Any) -> None:
    async with (
        serve(emits(65)) as server,
        server.session.post(
            server.url + "/v1/completions",
            data=orjson.dumps(GOOD),
            headers={"Content-Type": "application/json; charset=UTF-8"},
        ) as response,
    ):
        assert response.status == 200


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (b'{"prompt":"hi \\ud83d","stream":true}', "column 15"),
        (b'{"messages":[{"role":"user","content":"\\udc00"}]}', "column 40"),
        (b'{"prompt":"x","stop":"\\ud83d"}', "column 23"),
        (b'{"prompt":"\xed\xa0\xbd"}', "byte 11"),
        (b'{"prompt":"\xff"}', "byte 11"),
    ],
)
async def test_half_a_surrogate_pair_is_refused_with_its_place(
    serve: Any, emits: Any, body: bytes, where: str
) -> None:
    async with serve(emits(65)) as server:
        status, error = await sent(server, "/v1/completions", body, "application/json")
        assert (status, error["code"]) == (400, "invalid_unicode")
        assert where in error["message"]


async def test_a_whole_surrogate_pair_is_one_character(serve: Any, emits: Any) -> None:
    async with serve(emits(65)) as server:
        async with server.session.post(
            server.url + "/v1/completions",
            data=b'{"prompt":"\\ud83d\\ude42"}',
            headers={"Content-Type": "application/json"},
        ) as response:
            answer = orjson.loads(await response.read())
    assert answer["usage"]["prompt_tokens"] == len("🙂".encode())


@pytest.mark.parametrize(
    ("field", "near"),
    [("max_token", "max_tokens"), ("temprature", "temperature"), ("Stream", "stream")],
)
async def test_an_unknown_field_is_refused_and_its_neighbour_named(
    serve: Any, emits: Any, field: str, near: str
) -> None:
    async with serve(emits(65)) as server:
        status, error = await server.refusal("/v1/completions", {**GOOD, field: 1})
        assert (status, error["param"], error["code"]) == (400, field, "unknown_parameter")
        assert near in error["message"]
        long = "x" * 100_000
        status, error = await server.refusal("/v1/completions", {**GOOD, long: 1})
        assert status == 400 and len(error["message"]) < 200


@pytest.mark.parametrize(
    ("field", "default", "other"),
    [
        ("top_logprobs", None, 2),
        ("tools", [], [{"type": "function"}]),
        ("tool_choice", "none", "required"),
        ("suffix", None, "y"),
        ("prompt_logprobs", None, 1),
        ("store", False, True),
        ("chat_template", None, "{{ x }}"),
    ],
)
async def test_a_field_that_does_nothing_yet_may_only_have_its_default(
    serve: Any, emits: Any, field: str, default: Any, other: Any
) -> None:
    async with serve(emits(65)) as server:
        assert (await server.post("/v1/completions", {**GOOD, field: default}))[0] == 200
        assert (await server.post("/v1/completions", {**GOOD, field: None}))[0] == 200
        status, error = await server.refusal("/v1/completions", {**GOOD, field: other})
        assert (status, error["param"], error["code"]) == (400, field, "unsupported_parameter")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", "0"),
        ("temperature", True),
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("top_p", -0.1),
        ("top_p", 1.1),
        ("top_k", -2),
        ("top_k", 1.5),
        ("top_k", 1.0),
        ("min_p", 2),
        ("seed", "1"),
        ("seed", 1.0),
        ("repetition_penalty", 0),
        ("frequency_penalty", 3),
        ("presence_penalty", -3),
        ("max_tokens", -1),
        ("max_tokens", 1.0),
        ("max_tokens", "1"),
        ("max_tokens", True),
        ("max_tokens", [1]),
        ("min_tokens", -1),
        ("ignore_eos", 1),
        ("echo", "true"),
        ("stream", 0),
        ("stream_options", True),
        ("skip_special_tokens", "no"),
        ("stop", {"a": 1}),
        ("stop", ""),
        ("stop", ["a", ""]),
        ("stop", ["a", 1]),
        ("stop", ["a"] * 17),
        ("logit_bias", [1]),
        ("logit_bias", {"264": 5}),
        ("logit_bias", {"261": 5}),
        ("logit_bias", {"abc": 1}),
        ("logit_bias", {"-1": 1}),
        ("logit_bias", {"9" * 5000: 1}),
        ("logit_bias", {"65": 1e9}),
        ("logit_bias", {"65": "1"}),
        ("stop_token_ids", [999_999]),
        ("stop_token_ids", [-1]),
        ("stop_token_ids", ["65"]),
        ("stop_token_ids", list(range(200))),
        ("prompt", {"x": 1}),
        ("prompt", 5),
        ("prompt", None),
        ("prompt", ""),
        ("prompt", [""]),
        ("prompt", []),
        ("prompt", [[]]),
        ("prompt", [-1]),
        ("prompt", [264]),
        ("prompt", [261]),
        ("prompt", [100_000_000_000_000_000_000]),
        ("prompt", [True]),
        ("prompt", [1.0]),
        ("prompt", ["a", 1]),
        ("prompt", [1, "a"]),
        ("prompt", [[1], 1]),
        ("prompt", [[1], ["a"]]),
        ("prompt", ["x"] * 1025),
        ("model", None),
        ("model", 5),
        ("model_id", None),
        ("request_id", ""),
        ("request_id", "two words"),
        ("request_id", "x" * 129),
        ("request_id", "ü"),
        ("cache_salt", ""),
        ("cache_salt", 5),
        ("cache_salt", "a\nb"),
        ("cache_salt", "x" * 129),
        ("user", 5),
        ("safety_identifier", ["me"]),
        ("prompt_cache_key", True),
        ("metadata", []),
        ("metadata", {"a": 1}),
        ("logprobs", True),
        ("logprobs", False),
        ("logprobs", -1),
        ("logprobs", 21),
        ("logprobs", 1.0),
    ],
)
async def test_a_value_of_the_wrong_type_or_range_is_named(
    serve: Any, emits: Any, field: str, value: Any
) -> None:
    async with serve(emits(65)) as server:
        for stream in (False, True):
            body = {**GOOD, "stream": stream, field: value}
            status, error = await server.refusal("/v1/completions", body)
            assert (status, error["type"]) == (400, "invalid_request_error")
            assert error["param"] is not None and error["param"].startswith(field)
            assert len(error["message"]) < 300
        assert (await server.post("/v1/completions", GOOD))[0] == 200
        await server.quiet()


async def test_more_min_tokens_than_max_tokens_are_refused(serve: Any, emits: Any) -> None:
    async with serve(emits(65)) as server:
        body = {"prompt": "x", "min_tokens": 9, "max_tokens": 8}
        status, error = await server.refusal("/v1/completions", body)
        assert (status, error["param"]) == (400, "min_tokens")


@pytest.mark.parametrize("min_tokens", [256, 2**31, 2**62])
async def test_more_min_tokens_than_could_ever_come_are_refused(
    serve: Any, emits: Any, min_tokens: int
) -> None:
    body = {"messages": [{"role": "user", "content": "x"}], "min_tokens": min_tokens}
    async with serve(emits(65)) as server:
        status, error = await server.refusal("/v1/chat/completions", body)
        assert (status, error["param"]) == (400, "min_tokens")
        assert (await server.post("/v1/completions", GOOD))[0] == 200


@pytest.mark.parametrize("model", ["m-1", "", "../tiny", "TINY", "x" * 10_000])
@pytest.mark.parametrize("field", ["model", "model_id"])
async def test_an_unknown_model_is_not_found(
    serve: Any, emits: Any, field: str, model: str
) -> None:
    async with serve(emits(65)) as server:
        status, error = await server.refusal("/v1/completions", {**GOOD, field: model})
        assert (status, error["code"]) == (404, "model_not_found")
        assert len(error["message"]) < 300


async def test_two_names_of_different_models_are_refused(serve: Any, emits: Any) -> None:
    async with serve(emits(65)) as server:
        body = {**GOOD, "model": "tiny", "model_id": "other"}
        assert (await server.refusal("/v1/completions", body))[0] == 400
        assert (await server.post("/v1/completions", {**body, "model_id": "tiny"}))[0] == 200


async def test_up_to_the_body_limit_the_content_decides(serve: Any, emits: Any) -> None:
    envelope = len(orjson.dumps({"prompt": ""}))
    async with serve(emits(65), max_body=2 * 2**20) as server:
        for size in (2**20, 2**20 + 1, 2 * 2**20):  # aiohttp's own limit would be the first
            body = orjson.dumps({"prompt": "x" * (size - envelope)})
            assert len(body) == size
            status, error = await sent(server, "/v1/completions", body, "application/json")
            assert (status, error["code"]) == (400, "context_length_exceeded")
        status, error = await sent(server, "/v1/completions", body + b" ", "application/json")
        assert (status, error["code"]) == (413, "body_too_large")


async def test_an_announced_body_over_the_limit_is_refused_unread(
    serve: Any, emits: Any, connect: Any
) -> None:
    async with serve(emits(65), max_body=1000) as server, connect(server) as client:
        await client.send(
            b"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 1001\r\n\r\n"
        )
        answer = await client.receive_all()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in head.lower()
    assert orjson.loads(body)["error"]["code"] == "body_too_large"


async def test_a_body_without_an_end_is_cut_off(serve: Any, emits: Any, connect: Any) -> None:
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    async with serve(emits(65), max_body="1MiB") as server, connect(server) as client:
        await client.send(
            b"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        async with anyio.create_task_group() as tasks:

            async def upload() -> None:
                with pytest.raises((anyio.BrokenResourceError, anyio.ClosedResourceError)):
                    while True:
                        await client.send(chunk)

            tasks.start_soon(upload)
            answer = await client.receive_all()
            await client.close()
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b'"body_too_large"' in answer


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"POST /generate HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nnothex\r\n",
        b"x" * 100_000,
    ],
)
async def test_what_is_no_http_is_refused_and_nobody_else_notices(
    serve: Any, emits: Any, connect: Any, garbage: bytes
) -> None:
    async with serve(emits(65)) as server, connect(server) as client:
        await client.send(garbage)
        answer = await client.receive_all()
        assert answer == b"" or answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.0 400 "))
        assert (await server.post("/v1/completions", GOOD))[0] == 200


async def test_an_address_that_is_no_text_is_not_found(
    serve: Any, emits: Any, connect: Any
) -> None:
    async with serve(emits(65)) as server, connect(server) as client:
        await client.send(
            b"GET /\xff\xed\xa0\xbd%ed%a0 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        answer = await client.receive_all()
    assert answer.startswith((b"HTTP/1.1 404 ", b"HTTP/1.0 400 ", b"HTTP/1.1 400 "))


async def test_unknown_addresses_and_methods_have_the_error_shape(serve: Any, emits: Any) -> None:
    async with serve(emits(65)) as server:
        status, answer = await server.get("/nothing")
        assert (status, answer["error"]["code"]) == (404, "not_found")
        assert "/v1/models" in answer["error"]["message"]
        async with server.session.get(server.url + "/v1/completions") as response:
            assert response.status == 405
            assert response.headers["Allow"] == "POST"
            assert orjson.loads(await response.read())["error"]["code"] == "method_not_allowed"
