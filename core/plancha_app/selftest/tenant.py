"""One tenant as a client of the server under test."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import attrs
import orjson

from plancha_app.complaints import CommandError
from plancha_app.remote.server_error import unreachable

ID_HEADER = "Plancha-Request-Id"
LABEL_HEADER = "X-Request-Id"
SILENT_S = 120.0


class SelftestError(CommandError):
    """The server cannot be tested: it does not answer, or refuses what should be answered."""


@attrs.frozen(kw_only=True)
class Answered:
    """What came of a request that was answered to its end."""

    id: str
    cached_tokens: int
    ttft_s: float


@attrs.frozen(kw_only=True)
class Seen:
    """What a look at an address came to."""

    status: int
    headers: str
    body: str

    @property
    def all(self) -> str:
        """Everything that was said, to search in."""
        return f"{self.headers}\n{self.body}"


@attrs.frozen
class Tenant:
    """Asks with its own key. Raises `SelftestError` when the server cannot be asked."""

    name: str
    _session: aiohttp.ClientSession

    async def ask(self, prompt: str, label: str = "", tokens: int = 1) -> Answered:
        """Generate, to the end."""
        began, ttft_s = time.perf_counter(), 0.0
        async with self.stream(prompt, label, tokens) as (request_id, events):
            async for event in events:
                ttft_s = ttft_s or time.perf_counter() - began
                if "usage" in event:
                    cached_tokens = event["usage"]["cached_tokens"]
                    return Answered(id=request_id, cached_tokens=cached_tokens, ttft_s=ttft_s)
        raise SelftestError(f"{self.name}: a stream ended without its usage")

    @asynccontextmanager
    async def stream(
        self, prompt: str, label: str = "", tokens: int = 1
    ) -> AsyncIterator[tuple[str, AsyncIterator[dict[str, Any]]]]:
        """The request's id, as soon as it has one, and its events as they come."""
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        headers = {LABEL_HEADER: label} if label else {}
        try:
            async with self._session.post("/generate", json=body, headers=headers) as response:
                if response.status != 200:
                    raise SelftestError(f"{self.name}: {_refusal(await response.read())}")
                yield response.headers[ID_HEADER], _events(response)
        except KeyError:
            raise SelftestError(f"{self.name}: no {ID_HEADER}: it answers as no Plancha") from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._lost(error) from None

    async def look(self, path: str, method: str = "GET", label: str = "") -> Seen:
        """Whatever there is."""
        headers = {LABEL_HEADER: label} if label else {}
        try:
            async with self._session.request(method, path, headers=headers) as response:
                told = "\n".join(f"{name}: {value}" for name, value in response.headers.items())
                return Seen(status=response.status, headers=told, body=await response.text())
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._lost(error) from None

    def _lost(self, error: Exception) -> SelftestError:
        return SelftestError(str(unreachable(error, f"{self.name}: the server")))


@asynccontextmanager
async def tenant(name: str, url: str, key: str) -> AsyncIterator[Tenant]:
    """As long as it is needed."""
    timeout = aiohttp.ClientTimeout(total=None, sock_read=SILENT_S, sock_connect=30)
    headers = {"Authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession(url, timeout=timeout, headers=headers) as session:
        yield Tenant(name, session)


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    async for line in response.content:
        if line.startswith(b"data: "):
            event = orjson.loads(line[6:])
            if "error" in event:
                raise SelftestError(event["error"]["message"])
            yield event


def _refusal(body: bytes) -> str:
    try:
        return str(orjson.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return "it answers as no Plancha does"
