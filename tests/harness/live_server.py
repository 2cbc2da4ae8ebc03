"""A server that answers `GET /v1/live` as it is told to."""

from collections.abc import Iterator
from contextlib import contextmanager

import attrs
from aiohttp import web

from live_views import live
from threaded_server import served

A_LOOK_S, TOKENS = 0.25, 100


@attrs.define(eq=False)
class LiveServer:
    """At each look a quarter of a second later, and a hundred tokens on."""

    url: str = ""
    model: str = "other-model"
    trouble: str = "loading"
    fails: bool = False
    nonsense: bool = False
    looks: int = 0

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": self.model}]})

    async def live(self, request: web.Request) -> web.Response:
        if self.fails:
            return web.json_response({"error": {"message": self.trouble}}, status=503)
        if self.nonsense:
            return web.json_response({})
        self.looks += 1
        at_s, generated = self.looks * A_LOOK_S, self.looks * TOKENS
        return web.json_response(live(at_s=at_s, generated=generated))


@contextmanager
def serving() -> Iterator[LiveServer]:
    """While it answers at its `url`."""
    server = LiveServer()

    def add_routes(router: web.UrlDispatcher) -> None:
        router.add_get("/v1/models", server.models)
        router.add_get("/v1/live", server.live)

    with served(add_routes) as server.url:
        yield server
