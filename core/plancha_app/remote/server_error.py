"""What keeps a server from answering, in words that say what to look at."""

from collections.abc import Mapping
from typing import Any

import aiohttp
import orjson

from plancha_app.complaints import CommandError

LONGEST = 500  # characters of what another program says
GIVE_A_KEY = "give a key with --key-file FILE, or in OPENAI_API_KEY"


class ServerError(CommandError):
    """A server that cannot be asked, or refuses."""


def unreachable(error: Exception, root: str) -> ServerError:
    """Of what the HTTP client raises."""
    return ServerError(f"{root} {_reason(error)}")


def _reason(error: Exception) -> str:
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return f"shows a certificate that is not trusted: {error.certificate_error}"
        case aiohttp.ClientConnectorSSLError():
            return "does not speak TLS as it should; is it http:// and not https://?"
        case aiohttp.ClientConnectorDNSError():
            return "does not answer: no such host is known"
        case aiohttp.ClientConnectorError(os_error=ConnectionRefusedError()):
            return "does not answer: the connection is refused; `plancha serve` starts a server"
        case aiohttp.ClientConnectorError():
            return f"does not answer: {error.os_error.strerror or error.os_error}"
        case TimeoutError():
            return "does not answer: it is silent for too long"
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientPayloadError() | ConnectionError():
            return "hung up before its answer was complete"
        case aiohttp.InvalidURL():
            return "is no server's address"
        case aiohttp.TooManyRedirects():
            return "sends from one address to the next without end"
        case aiohttp.ClientResponseError():
            return "does not speak HTTP as it should"
    return f"does not answer: {type(error).__name__}"


def refusal(status: int, headers: Mapping[str, str], body: bytes, root: str) -> ServerError:
    """Of an answer that is not 200: what the server says, and what would help."""
    said = message_in(body)
    match status:
        case 401:
            return ServerError(f"{root} answers 401: {said or 'no key is known'}; {GIVE_A_KEY}")
        case 404 if "model" in said.lower():
            return ServerError(f"{root} answers 404: {said}")
        case 404:
            found = said or "nothing is there"
            return ServerError(f"{root} answers 404: {found}; is that the right server?")
        case 429 | 503 if "Retry-After" in headers:
            after = headers["Retry-After"][:20]
            return ServerError(f"{root} answers {status}: {said}; try again in {after} s")
    return ServerError(f"{root} answers {status}{f': {said}' if said else ''}")


def message_in(body: bytes) -> str:
    """What an error object says, of whatever make; "" when it says nothing."""
    try:
        found: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    return message_of(found.get("error", found) if isinstance(found, dict) else found)


def message_of(error: Any) -> str:
    """Of an `error` as OpenAI has it, or others: an object with a message, or the message."""
    if isinstance(error, dict):
        error = error.get("message", error.get("detail", ""))
    return error[:LONGEST].strip().rstrip(".") if isinstance(error, str) else ""
