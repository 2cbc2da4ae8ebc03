"""From bytes to a JSON object, or a refusal that says what is wrong with them."""

from typing import Any

import numpy as np
import orjson

from plancha.failure import RequestFailed, invalid

LARGE = 256 * 2**10
"""Characters of JSON text from which it is looked at before it is parsed."""

MOST_PARTS = 200_000
"""Lists, objects and keys of a large body at most: they are what takes time to parse. A chat of
50,000 messages has 150,000."""


def parse_object(raw: bytes | str, what: str = "body") -> dict[str, Any]:
    """The JSON object in `raw`; `what` names it in errors. Raises `RequestFailed` ("invalid").

    Half a surrogate pair, as an escape or as bytes, is refused here: no string of the result
    holds one.
    """
    if len(raw) >= LARGE and _parts_at_most(raw) > MOST_PARTS and parts(raw) > MOST_PARTS:
        message = f"The {what} has over {MOST_PARTS:,} lists, objects and keys."
        raise invalid(None, message, "too_many_values")
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


def parts(raw: bytes | str) -> int:
    """Lists, objects and keys in JSON text: its `[`, `{` and `:` outside of strings."""
    text = raw.encode("utf-8", "replace") if isinstance(raw, str) else raw
    text = text.replace(rb"\\", b"").replace(rb"\"", b"")  # now every quote opens or closes
    found = np.frombuffer(text, np.uint8)
    in_string = np.bitwise_xor.accumulate((found == ord('"')).view(np.uint8)).view(np.bool_)
    opening = (found == ord("[")) | (found == ord("{")) | (found == ord(":"))
    return int(np.count_nonzero(opening & ~in_string))


def _parts_at_most(raw: bytes | str) -> int:
    if isinstance(raw, str):
        return raw.count("[") + raw.count("{") + raw.count(":")
    return raw.count(b"[") + raw.count(b"{") + raw.count(b":")
