"""From bytes to a JSON object, or a refusal that says what is wrong with them."""

from typing import Any

import orjson
from aiohttp import web

from plancha.failure import Failure, RequestFailed, invalid

NOT_JSON = Failure(
    "media_type",
    "The body must be JSON: send the header Content-Type: application/json.",
    None,
    "unsupported_media_type",
)


async def read_object(request: web.Request, max_body: int) -> dict[str, Any]:
    """The request's body. Raises `RequestFailed` of kind media_type, too_large or invalid.

    A body over `max_body` bytes is not read to its end.
    """
    if request.content_type != "application/json" or not _is_utf8(request.charset):
        raise RequestFailed(NOT_JSON)
    if request.content_length is not None and request.content_length > max_body:
        raise too_large(max_body)
    try:
        raw = await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise too_large(max_body) from None
    except web.RequestPayloadError:
        raise invalid(None, "The body is not what its headers announce.", "invalid_body") from None
    return parse_object(raw)


def too_large(max_body: int) -> RequestFailed:
    """A body over the limit, which is in bytes."""
    return RequestFailed(
        Failure("too_large", f"The body is over {max_body:,} bytes.", None, "body_too_large")
    )


def parse_object(raw: bytes | str, what: str = "body") -> dict[str, Any]:
    """The JSON object in `raw`; `what` names it in errors. Raises `RequestFailed` ("invalid").

    Half a surrogate pair, as an escape or as bytes, is refused here: no string of the result
    holds one.
    """
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise _malformed(raw, what, error) from None
    if not isinstance(value, dict):
        raise invalid(None, f"The {what} must be a JSON object.", "invalid_json")
    return value


def _malformed(raw: bytes | str, what: str, error: orjson.JSONDecodeError) -> RequestFailed:
    if not raw:
        return invalid(None, f"The {what} is empty; it must be a JSON object.", "invalid_json")
    if isinstance(raw, bytes):
        try:
            raw.decode()
        except UnicodeDecodeError as undecodable:
            where = f"byte {undecodable.start}"
            return invalid(None, f"The {what} is not valid UTF-8 at {where}.", "invalid_unicode")
    where = f"line {error.lineno} column {error.colno} (character {error.pos})"
    if "surrogate" in str(error):
        message = f"The {what} has half a surrogate pair at {where}; a character needs both."
        return invalid(None, message, "invalid_unicode")
    return invalid(None, f"The {what} is not valid JSON at {where}.", "invalid_json")


def _is_utf8(charset: str | None) -> bool:
    return charset is None or charset.lower().replace("_", "-") in ("utf-8", "utf8")
