"""What an operator can set of the HTTP transport."""

import re

import attrs

from plancha.option_values import Check
from plancha.options import Size, at_least, between
from plancha_transports.reader_patience import ReaderPatience

DEFAULT_SIZE = Size(8 * 2**20)


def _are_origins(origins: tuple[str, ...]) -> bool:
    return all(re.fullmatch(r"https?://[^/\s]+", origin) for origin in origins)


def _are_hosts(hosts: tuple[str, ...]) -> bool:
    return all(re.fullmatch(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+", host) for host in hosts)


@attrs.frozen(kw_only=True)
class HttpOptions:
    """The table `[transport.http]`.

    `max_bodies`: of all bodies that are being read at once, when it is over `max_body`. A body,
    or a WebSocket message, has `body_timeout_s` to arrive, and a connection `keepalive_s` for the
    head of its next request.
    Of `max_connections` no more are open at once than the process may have files open.
    A request's prompts times its n may be as many as the larger of `max_prompts` and `max_n`.
    `headers_after_s`: a stream's HTTP status is decided by its first token, or by then.
    Of a client that lags, `max_pending_bytes` wait in its connection's buffer, one write more at
    most; behind that each stream is paused when `max_pending_tokens` wait, as ids. A connection
    that takes nothing for `stall_timeout_s`, or in `drain_timeout_s` less than three quarters of
    its buffer, has its requests cancelled; once more, it is closed.
    `heartbeat_s` and `ws_heartbeat_s` 0 are off. `allowed_origins` are browser origins
    ("https://chat.example") that may call besides pages served from the same host and port.
    `allowed_hosts` are names ("llm.example", without a port) by which the server may be called: on
    loopback besides its own, elsewhere nothing but these once there are any.
    """

    host: str = "127.0.0.1"
    port: int = attrs.field(default=8000, validator=between(0, 65535))  # 0: any free one
    max_body: Size = attrs.field(default=DEFAULT_SIZE, validator=at_least(1))  # bytes
    max_bodies: Size = attrs.field(default=Size(256 * 2**20), validator=at_least(1))  # bytes
    body_timeout_s: float = attrs.field(default=30.0, validator=at_least(0.001))
    keepalive_s: float = attrs.field(default=75.0, validator=at_least(0.001))
    max_connections: int = attrs.field(default=16_384, validator=at_least(1))
    max_prompts: int = attrs.field(default=1024, validator=at_least(1))  # of one request
    max_n: int = attrs.field(default=128, validator=at_least(1))  # outputs of one prompt
    headers_after_s: float = attrs.field(default=10.0, validator=at_least(0))
    max_pending_bytes: Size = attrs.field(default=Size(64 * 2**10), validator=at_least(1))
    max_pending_tokens: int = attrs.field(default=1024, validator=at_least(1))
    stall_timeout_s: float = attrs.field(default=30.0, validator=at_least(0.001))
    drain_timeout_s: float = attrs.field(default=300.0, validator=at_least(0.001))
    heartbeat_s: float = attrs.field(default=15.0, validator=at_least(0))
    ws_heartbeat_s: float = attrs.field(default=30.0, validator=at_least(0))
    ws_max_message: Size = attrs.field(default=DEFAULT_SIZE, validator=at_least(1))  # bytes
    ws_max_requests: int = attrs.field(default=256, validator=at_least(1))  # at once on one socket
    allowed_origins: tuple[str, ...] = attrs.field(
        default=(), validator=Check('such as "https://chat.example"', _are_origins)
    )
    allowed_hosts: tuple[str, ...] = attrs.field(
        default=(), validator=Check('such as "llm.example", without a port', _are_hosts)
    )

    def patience(self) -> ReaderPatience:
        """With one connection's reader."""
        return ReaderPatience(self.stall_timeout_s, self.drain_timeout_s)
