"""A request's id: made here, never by a client, and it names the gateway that answers it."""

import re
from secrets import token_hex

PREFIX = "req-"
NAME_BYTES = 4
RANDOM_BYTES = 12


def gateway_name() -> str:
    """A new gateway's, in hex."""
    return token_hex(NAME_BYTES)


def new_request_id(gateway: str) -> str:
    """A new one's: 96 random bits that nobody can guess, after the gateway's name."""
    return f"{PREFIX}{gateway}{token_hex(RANDOM_BYTES)}"


def is_request_id(text: str) -> bool:
    """Whether it could be one of ours."""
    digits = 2 * (NAME_BYTES + RANDOM_BYTES)
    return re.fullmatch(rf"{PREFIX}[0-9a-f]{{{digits}}}", text) is not None


def gateway_of(request_id: str) -> str:
    """The name in an id. Of a string that is none: anything, and nobody has that name."""
    start = len(PREFIX)
    return request_id[start : start + 2 * NAME_BYTES]
