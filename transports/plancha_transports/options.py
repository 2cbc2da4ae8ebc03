"""What an operator can set of the HTTP transport."""

import re

import attrs

from plancha.option_values import Check
from plancha.options import Size, at_least, between

DEFAULT_SIZE = Size(8 * 2**20)


def _are_origins(origins: tuple[str, ...]) -> bool:
    return all(re.fullmatch(r"https?://[^/\s]+", origin) for origin in origins)


@attrs.frozen(kw_only=True)
class HttpOptions:
    """The table `[transport.http]`.

    A request's prompts times its n may be as many as the larger of `max_prompts` and `max_n`.
    `headers_after_s`: a stream's HTTP status is decided by its first token, or by then.
    `heartbeat_s` and `ws_heartbeat_s` 0 are off. `allowed_origins` are browser origins
    ("https://chat.example") that may call besides pages served from the same host and port.
    """

    host: str = "127.0.0.1"
    port: int = attrs.field(default=8000, validator=between(0, 65535))  # 0: any free one
    max_body: Size = attrs.field(default=DEFAULT_SIZE, validator=at_least(1))  # bytes
    max_prompts: int = attrs.field(default=1024, validator=at_least(1))  # of one request
    max_n: int = attrs.field(default=128, validator=at_least(1))  # outputs of one prompt
    headers_after_s: float = attrs.field(default=10.0, validator=at_least(0))
    heartbeat_s: float = attrs.field(default=15.0, validator=at_least(0))
    ws_heartbeat_s: float = attrs.field(default=30.0, validator=at_least(0))
    ws_max_message: Size = attrs.field(default=DEFAULT_SIZE, validator=at_least(1))  # bytes
    ws_max_requests: int = attrs.field(default=256, validator=at_least(1))  # at once on one socket
    allowed_origins: tuple[str, ...] = attrs.field(
        default=(), validator=Check('such as "https://chat.example"', _are_origins)
    )
