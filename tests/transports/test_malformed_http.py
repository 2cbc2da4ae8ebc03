"""Bytes that are no HTTP: what was wrong is told in our shape, and none of them is said back."""

from typing import Any

import orjson
import pytest
from aiohttp import http_exceptions

from plancha_transports.malformed import MALFORMED, malformed

SECRET = b"S3CRET"
HEAD = b"HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v1/completions " + HEAD + b"Content-Type: application/json\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"

MALFORMED_REQUESTS = {
    "nothing like it": (SECRET + b" " + SECRET + b"\r\n\r\n", "malformed_request_line"),
    "method": (SECRET + b" / " + HEAD + b"\r\n", "malformed_request_line"),
    "version": (b"GET /S3CRET HTTP/9.9\r\nHost: x\r\n\r\n", "malformed_request_line"),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00" + SECRET, "https_on_http_port"),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "http2_not_supported"),
    "URL": (b"GET http://[::S3CRET " + HEAD + b"\r\n", "malformed_url"),
    "control character in the URL": (b"GET /S3CRET\x01 " + HEAD + b"\r\n", "malformed_url"),
    "long path": (b"GET /" + SECRET * 2000 + b" " + HEAD + b"\r\n", "line_too_long"),
    "long header": (b"GET / " + HEAD + b"A: " + SECRET * 2000 + b"\r\n\r\n", "line_too_long"),
    "many headers": (b"GET / " + HEAD + b"A: S3CRET\r\n" * 200 + b"\r\n", "too_many_headers"),
    "space in a name": (b"GET / " + HEAD + b"S3CRET S: b\r\n\r\n", "malformed_header"),
    "zero in a value": (b"GET / " + HEAD + b"A: S3CRET\0\r\n\r\n", "malformed_header"),
    "no colon": (b"GET / " + HEAD + b"S3CRET\r\n\r\n", "malformed_header"),
    "no host": (b"GET /S3CRET HTTP/1.1\r\n\r\n", "malformed_host"),
    "two hosts": (b"GET / " + HEAD + b"Host: S3CRET\r\n\r\n", "malformed_host"),
    "length in words": (POST + b"Content-Length: S3CRET\r\n\r\n{}", "malformed_length"),
    "two lengths": (
        POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nS3CRET",
        "malformed_length",
    ),
    "length and chunks": (
        POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nS3CRET",
        "malformed_length",
    ),
    "coding": (POST + b"Transfer-Encoding: gzip\r\n\r\nS3CRET", "malformed_length"),
    "size of a chunk": (CHUNKED + b"S3CRET\r\n{}", "malformed_chunk"),
    "end of a chunk": (CHUNKED + b"2\r\n{}S3CRET", "malformed_chunk"),
}
CODES = {code for _, code in MALFORMED_REQUESTS.values()}


@pytest.mark.parametrize("name", MALFORMED_REQUESTS)
async def test_what_is_no_http_is_told_what_would_be_and_hears_none_of_its_bytes(
    serve: Any, says: Any, connect: Any, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    request, code = MALFORMED_REQUESTS[name]
    async with serve(says("Hi")) as server:
        async with connect(server) as client:
            await client.send(request)
            answer = await client.receive_all()
        async with server.session.get(server.url + "/metrics") as response:
            metrics = await response.text()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split(b" ")[1] == b"400"
    assert b"\r\ncontent-type: application/json" in head.lower()
    assert b"\r\nconnection: close" in head.lower()
    error = orjson.loads(body)["error"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", None, code)
    assert SECRET not in answer
    assert f'plancha_malformed_requests_total{{code="{code}"}} 1.0' in metrics
    logged = "".join(capfd.readouterr())
    assert SECRET.decode() not in logged
    assert len([line for line in logged.splitlines() if "http_malformed" in line]) == 1
    assert "Traceback" not in logged


@pytest.mark.parametrize("rest", [b"S3CRET\r\n", b"2\r\n{}S3CRET", b"0\r\nA: " + SECRET * 2000])
async def test_a_body_that_turns_out_to_be_malformed_is_refused_at_once_and_once(
    serve: Any, says: Any, connect: Any, rest: bytes
) -> None:
    async with serve(says("Hi"), body_timeout_s=3600) as server, connect(server) as client:
        await client.send(CHUNKED.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
        go_on = await client.receive_until(b"\r\n\r\n")  # the body is being waited for
        await client.send(rest)
        answer = (await client.receive_all()).removeprefix(go_on)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"\r\nconnection: close" in head.lower()
    assert orjson.loads(body)["error"]["code"] == "invalid_body"
    assert SECRET not in answer


async def test_a_stream_beside_malformed_requests_goes_on(
    serve: Any, emits: Any, connect: Any
) -> None:
    async with serve(emits(*b"ABCDEFGH")) as server, connect(server) as streaming:
        await streaming.post("/generate", {"prompt": "x", "max_tokens": 60})
        for request, _ in MALFORMED_REQUESTS.values():
            async with connect(server) as client:
                await client.send(request)
                assert b" 400 " in await client.receive_all()
        assert b"event: done" in await streaming.receive_until(b"\r\n0\r\n\r\n")


def test_whatever_a_parser_complains_of_is_one_of_a_few_constants() -> None:
    codes = {
        malformed(http_exceptions.BadHttpMessage(f"{word} S3CRET\nContent-Length")).code
        for word in ("", "Content-Length", "Invalid chunk", "anything", "Header")
    }
    assert codes == {"malformed_request", "malformed_length", "malformed_chunk", "malformed_header"}
    assert malformed(None) is MALFORMED
    assert malformed(http_exceptions.InvalidHeader(b"S3CRET")).code == "malformed_header"
