"""A connection to a server, and the questions that several commands ask."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import attrs
import orjson

from plancha_app.remote.address import Address
from plancha_app.remote.server_error import ServerError, refusal, unreachable

CONNECT_S = 10.0
ASK_S = 10.0


@attrs.frozen
class Remote:
    """A server that is asked. Everything raises `ServerError`."""

    address: Address
    session: aiohttp.ClientSession

    async def look(self, url: str) -> bytes:
        """The body of a short answer."""
        timeout = aiohttp.ClientTimeout(total=ASK_S, sock_connect=CONNECT_S)
        with told(self.address.root):
            async with self.session.get(url, timeout=timeout) as response:
                body = await response.read()
        if response.status != 200:
            raise refusal(response.status, response.headers, body, self.address.root)
        return body

    async def models(self) -> list[str]:
        """Their names, in the server's order; never empty."""
        body = await self.look(f"{self.address.api}/models")
        try:
            names = [str(model["id"]) for model in orjson.loads(body)["data"]]
        except (KeyError, TypeError, ValueError):
            names = []
        if not names:
            raise ServerError(
                f"{self.address} lists no model; is it still loading? --model names one"
            )
        return names


@asynccontextmanager
async def remote(
    address: Address, headers: dict[str, str], silent_s: float | None = None
) -> AsyncIterator[Remote]:
    """As long as it is needed; through the environment's proxy if it is on another machine."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=silent_s)
    async with aiohttp.ClientSession(
        timeout=timeout, headers=headers, proxy=proxy_of(address)
    ) as session:
        yield Remote(address, session)


def proxy_of(address: Address) -> str | None:
    """As the environment says. aiohttp's `trust_env` would send what is in ~/.netrc, too."""
    parts = urlsplit(address.root)
    if address.is_here or proxy_bypass(parts.hostname or ""):
        return None
    found = getproxies().get(parts.scheme)
    return found if found is None or "://" in found else f"http://{found}"


@contextmanager
def told(root: str) -> Iterator[None]:
    """What the HTTP client raises, in words."""
    try:
        yield
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise unreachable(error, root) from None


def parsed(body: bytes, what: str) -> dict[str, Any]:
    """An object. Raises `ServerError` when it is none."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise ServerError(f"{what} is no JSON object; is that the right server?")
    return found
