"""Two tenants with a key each, and ways to ask with one."""

import base64
import hashlib
from typing import Any

import orjson

from plancha.access import Access

A, B = "sk-test-a", "sk-test-b"
SOCKET = "/v1/stream"

ASKS: dict[str, dict[str, object]] = {
    "/generate": {"prompt": "x"},
    "/v1/completions": {"prompt": "x"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}]},
}


def sha(key: str) -> str:
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


def two_tenants(anonymous: str | None = None, **models: tuple[str, ...]) -> Access:
    return Access(keys={sha(A): "a", sha(B): "b"}, anonymous=anonymous, models=models)


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def as_subprotocol(key: bytes) -> str:
    return "key." + base64.urlsafe_b64encode(key).decode().rstrip("=")


async def ask(
    server: Any, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, Any]:
    request = server.session.request(method, server.url + path, json=body, headers=headers)
    async with request as response:
        raw = await response.read()
        whole = response.content_type == "application/json"
        return response.status, orjson.loads(raw) if whole else raw


def posted(headers: bytes) -> bytes:
    body = b'{"prompt": "x"}'
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    json = b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(body)
    return head + json + headers + b"\r\n" + body
