"""Which web pages may call: those served from here, and origins the operator named.

A browser sends Origin with every POST and WebSocket upgrade of a page; other clients send none.
Without this check any page a person visits could use a server on that person's own machine.
"""

from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Middleware

from plancha_transports.failures import Handler, error_response

EXPOSED = "Plancha-Request-Id, Retry-After, WWW-Authenticate, X-Request-Id"
PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST",
    # The star stands for all that clients add of their own, but never for Authorization (Fetch,
    # section 3.3.3).
    "Access-Control-Allow-Headers": "Authorization, Content-Type, X-Request-Id, *",
    "Access-Control-Max-Age": "600",
}


class Origins:
    """The check, and the CORS headers that let an allowed page read its answers."""

    def __init__(self, allowed: tuple[str, ...]) -> None:
        self._allowed = frozenset(origin.rstrip("/").lower() for origin in allowed)

    def middleware(self) -> Middleware:
        """Refuses with 403, answers preflights, and lets everything else pass."""

        @web.middleware
        async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
            origin = request.headers.get("Origin")
            if origin is None or _is_same(origin, request.host):
                return await handler(request)
            named = origin.lower() in self._allowed
            if request.method == "OPTIONS" and named:
                return web.Response(status=204, headers=PREFLIGHT)
            if not named and (request.method != "GET" or "Upgrade" in request.headers):
                return error_response(
                    403,
                    "origin_not_allowed",
                    "This origin may not call; the operator can add it to allowed_origins.",
                )
            return await handler(request)

        return check

    async def allow_reading(self, request: web.Request, response: web.StreamResponse) -> None:
        """Signal: an allowed page may see the response."""
        if self._allowed:
            response.headers["Vary"] = "Origin"
        origin = request.headers.get("Origin")
        if origin is not None and origin.lower() in self._allowed:
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Access-Control-Expose-Headers"] = EXPOSED


def _is_same(origin: str, host: str) -> bool:
    try:
        return bool(host) and urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:  # an IPv6 address that is none
        return False
