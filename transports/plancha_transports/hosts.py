"""By which names this server may be called.

A page can let its own name resolve to 127.0.0.1 once it is loaded (DNS rebinding); the browser then
takes a server on the visitor's machine for the page's own. Only the Host header tells: it still has
the page's name.
"""

import re
from ipaddress import ip_address

from aiohttp import web
from aiohttp.typedefs import Middleware

from plancha_transports.failures import Handler, error_response

HEALTH = "/health/"
"""Asked by probes, which call by whatever address they have; there is nothing to learn there."""


def is_loopback(host: str) -> bool:
    """Whether a name or address, as one listens on it, is only reached from this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class Hosts:
    """Loopback by its own names, and those that the operator allowed.

    A server that is reached from elsewhere, and whose names nobody listed, has no way to know them.
    """

    def __init__(self, allowed: tuple[str, ...], listens_on: str) -> None:
        self._allowed = frozenset(host.lower() for host in allowed)
        self._any = not allowed and not is_loopback(listens_on)

    def middleware(self) -> Middleware:
        """Refuses with 403 who calls by another name."""

        @web.middleware
        async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
            if self._any or request.path.startswith(HEALTH) or self._names_us(request):
                return await handler(request)
            return error_response(
                403,
                "host_not_allowed",
                "This server may not be called by the name that is in the header Host; "
                "the operator can add it to allowed_hosts.",
            )

        return check

    def _names_us(self, request: web.Request) -> bool:
        hosts = request.headers.getall("Host", [])
        name = _name(hosts[0]) if len(hosts) == 1 else ""
        return name in self._allowed or is_loopback(name)


def _name(host: str) -> str:
    """Of a Host header, without port and brackets; "" when it is malformed."""
    matched = re.fullmatch(r"(?:\[([0-9a-f:.]+)\]|([^\s:/@\[\]]+))(?::\d{0,5})?", host.lower())
    return (matched[1] or matched[2]) if matched else ""
