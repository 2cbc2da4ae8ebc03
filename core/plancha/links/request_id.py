"""A request's id: made here, never by a client, and it names the gateway that answers it."""

from secrets import token_hex

PREFIX = "req-"
NAME_BYTES = 4


def gateway_name() -> str:
    """A new gateway's, in hex."""
    return token_hex(NAME_BYTES)


def new_request_id(gateway: str) -> str:
    """A new one's: 96 random bits that nobody can guess, after the gateway's name."""
    return f"{PREFIX}{gateway}{token_hex(12)}"


def gateway_of(request_id: str) -> str:
    """The name in an id. Of a string that is none: anything, and nobody has that name."""
    start = len(PREFIX)
    return request_id[start : start + 2 * NAME_BYTES]
