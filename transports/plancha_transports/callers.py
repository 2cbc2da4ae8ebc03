"""Who calls: the key that a request presents, and the tenant whose it is.

A key comes in `Authorization: Bearer KEY`, once. A browser's WebSocket cannot send that header and
offers two subprotocols instead: `plancha`, which is the one agreed on, and `key.` followed by the
key in base64url without padding (RFC 4648, section 5), which is never said back. A key in a URL is
refused whatever it is: URLs end up in histories, in logs of proxies and in Referer headers.
"""

import base64
import re
from collections.abc import Callable

import attrs
from aiohttp import web
from aiohttp.typedefs import Middleware

from plancha.calls.call import Call
from plancha.failure import Failure, RequestFailed, invalid
from plancha.gateway import Gateway
from plancha_transports.failures import Handler

TENANT = web.RequestKey("tenant", str)
"""Set before a door is asked, except the open ones."""

SUBPROTOCOL = "plancha"
KEY_SUBPROTOCOL = "key."
LONGEST_KEY = 4096  # bytes

OPEN_DOORS = frozenset(
    {"/", "/page/{file}", "/health/live", "/health/ready", "/health/startup", "/openapi.json"}
)
"""What is answered without a key; a door that is not named here needs one."""

OPERATORS_DOORS = frozenset({"/metrics"})
"""What tells of all tenants together, which one of them is not to see."""

OPERATORS_ONLY = Failure(
    "forbidden",
    "This tells of all tenants together; it is for those that the deployment calls an operator.",
    None,
    "operators_only",
)

KEY_PARAMETERS = frozenset({"access_token", "api-key", "api_key", "apikey", "key", "token"})


def authentication(gateway: Gateway) -> Middleware:
    """Sets `TENANT`. Raises `RequestFailed` without a known key, or for another's door."""

    @web.middleware
    async def authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
        resource = request.match_info.route.resource
        door = None if resource is None else resource.canonical
        if door not in OPEN_DOORS:
            refuse_keys_in_url(request)
            tenant = request[TENANT] = gateway.access.tenant_of(presented_key(request))
            if door in OPERATORS_DOORS and not gateway.access.is_operator(tenant):
                raise RequestFailed(OPERATORS_ONLY)
        return await handler(request)

    return authenticate


def called_by(request: web.Request, call: Call) -> Call:
    """The call as its caller's, apart from all others in limits, cache and requests."""
    traceparent = request.headers.get("traceparent")
    return attrs.evolve(call, tenant=request[TENANT], traceparent=traceparent)


def tenant_on_socket(request: web.Request, gateway: Gateway) -> Callable[[], str]:
    """Asks anew for every request on an open socket: the operator may have withdrawn the key.

    What is returned raises `RequestFailed` as `Access.tenant_of` does.
    """
    key = presented_key(request)
    return lambda: gateway.access.tenant_of(key)


def presented_key(request: web.Request) -> bytes | None:
    """The key as it was sent; None when nothing was, b"" for what cannot be a key."""
    authorizations = [
        value for name, value in request.raw_headers if name.lower() == b"authorization"
    ]
    keys = [_bearer(value) for value in authorizations]
    keys += [_decoded(offer) for offer in offered_subprotocols(request) if _names_key(offer)]
    if len(keys) > 1:
        return b""
    return keys[0] if keys else None


def offered_subprotocols(request: web.Request) -> list[str]:
    """What the client of a WebSocket would speak, in its order; nobody else offers anything."""
    if request.headers.get("Upgrade", "").lower() != "websocket":
        return []
    lines = request.headers.getall("Sec-WebSocket-Protocol", [])
    return [offer.strip() for line in lines for offer in line.split(",")]


def can_agree(request: web.Request) -> bool:
    """Whether a WebSocket's client offers nothing, or what we speak, all of it in one header."""
    offered = offered_subprotocols(request)
    lines = request.headers.getall("Sec-WebSocket-Protocol", [])
    return not offered or (SUBPROTOCOL in offered and len(lines) == 1)


def refuse_keys_in_url(request: web.Request) -> None:
    """Raises `RequestFailed` ("invalid") for a parameter that is called like a key."""
    named = sorted(name for name in request.query if name.lower() in KEY_PARAMETERS)
    if named:
        raise invalid(
            named[0],
            f"{named[0]} is in the URL, where a key must never be: send it in the header "
            "Authorization: Bearer YOUR_KEY, and make a new one, since this one may be in logs.",
            "key_in_url",
        )


def _bearer(value: bytes) -> bytes:
    matched = re.fullmatch(rb"bearer +(\S+)", value, re.IGNORECASE)
    return matched[1] if matched and len(matched[1]) <= LONGEST_KEY else b""


def _names_key(offer: str) -> bool:
    return offer.startswith(KEY_SUBPROTOCOL)


def _decoded(offer: str) -> bytes:
    text = offer.removeprefix(KEY_SUBPROTOCOL)
    if re.fullmatch(r"[A-Za-z0-9_-]+", text) is None or len(text) % 4 == 1:
        return b""
    key = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    return key if len(key) <= LONGEST_KEY else b""
