"""`GET /` and `GET /page/…`: the web page, from a fixed table of its files.

What the page may do is said here and nowhere else: load its own files, and talk to this server.
Scripts that somebody gets into a document, by whatever way, do not run.
"""

from collections.abc import Mapping
from hashlib import sha256
from importlib.resources import files

import attrs
from aiohttp import ETag, web

CONTENT_TYPES: Mapping[str, str] = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",  # of WebSockets too
        "base-uri 'none'",
        "form-action 'none'",  # or a key could end up in a URL, should the script not run
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",  # no text ever becomes markup
        "trusted-types 'none'",
    )
)

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # that is: ask each time whether it has changed
}


@attrs.frozen
class PageFile:
    """What is sent of one file."""

    body: bytes
    content_type: str
    etag: str


class PageDoor:
    """All files are read once; no request ever leads to a path."""

    def __init__(self) -> None:
        self._files = {name: _file(name, body) for name, body in _found().items()}

    async def page(self, request: web.Request) -> web.Response:
        """The document."""
        return self._answer(request, "index.html")

    async def file(self, request: web.Request) -> web.Response:
        """One of its scripts and styles. Raises `HTTPNotFound`."""
        return self._answer(request, request.match_info["file"])

    def _answer(self, request: web.Request, name: str) -> web.Response:
        found = self._files.get(name)
        if found is None:
            raise web.HTTPNotFound
        known = request.if_none_match or ()
        if any(each.value == found.etag for each in known):
            response = web.Response(status=304, headers=HEADERS)
        else:
            response = web.Response(
                body=found.body,
                content_type=found.content_type,
                charset="utf-8",
                headers=HEADERS,
            )
        response.etag = ETag(found.etag)
        return response


def _found() -> dict[str, bytes]:
    folder = files("plancha_transports").joinpath("page")
    return {each.name: each.read_bytes() for each in folder.iterdir() if _suffix(each.name)}


def _suffix(name: str) -> str | None:
    suffix = "." + name.rpartition(".")[2]
    return suffix if suffix in CONTENT_TYPES else None


def _file(name: str, body: bytes) -> PageFile:
    return PageFile(body, CONTENT_TYPES[_suffix(name) or ""], sha256(body).hexdigest()[:32])
