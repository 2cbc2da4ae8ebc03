"""Somebody else's server: OpenAI's shapes, by a script."""

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
from aiohttp import web

from threaded_server import HANG_S, served


def event(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def piece(text: str, **choice: Any) -> bytes:
    return event(choices=[{"index": 0, "delta": {"content": text}, **choice}])


END = event(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}])
DONE = b"data: [DONE]\n\n"


def said(*texts: str) -> tuple[bytes, ...]:
    """A whole answer, a chunk a text."""
    return (*map(piece, texts), END, DONE)


@attrs.define(eq=False)
class OpenAiServer:
    """`chunks` are written as they are; `later` when it is released, if it is held until then."""

    url: str = ""
    chunks: Sequence[bytes] = said("Hello", " there.")
    status: int = 200
    content_type: str = "text/event-stream"
    models: Sequence[str] = ("other-model",)
    hold: bool = False
    later: Sequence[bytes] = ()
    refuse: str = ""  # a field that it does not know
    bodies: list[dict[str, Any]] = attrs.field(factory=list)
    keys: list[str | None] = attrs.field(factory=list)
    release: threading.Event = attrs.field(factory=threading.Event)
    left: threading.Event = attrs.field(factory=threading.Event)  # a client did, before the end

    async def list_models(self, request: web.Request) -> web.Response:
        self.keys.append(request.headers.get("Authorization"))
        return web.json_response({"data": [{"id": name} for name in self.models]})

    async def complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.keys.append(request.headers.get("Authorization"))
        if self.refuse and self.refuse in body:
            error = {"message": f"Unknown field: {self.refuse}", "param": self.refuse}
            return web.json_response({"error": error}, status=400)
        response = web.StreamResponse(
            status=self.status, headers={"Content-Type": self.content_type}
        )
        try:
            await response.prepare(request)
            for chunk in self.chunks:
                await response.write(chunk)
                await asyncio.sleep(0)
            if self.hold:
                await asyncio.to_thread(self.release.wait, HANG_S)
            for chunk in self.later:
                await response.write(chunk)
        except (asyncio.CancelledError, ConnectionError):
            self.left.set()
            raise
        return response


@contextmanager
def serving(server: OpenAiServer, prefix: str = "/v1") -> Iterator[OpenAiServer]:
    """While it answers at `server.url`."""

    def add_routes(router: web.UrlDispatcher) -> None:
        router.add_get(f"{prefix}/models", server.list_models)
        router.add_post(f"{prefix}/chat/completions", server.complete)

    with served(add_routes) as server.url:
        try:
            yield server
        finally:
            server.release.set()
