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
    """OpenAI-compatible HTTP, server-sent events, WebSocket, and the web page."""

    host: str = "127.0.0.1"
    """Address to listen on. Another one than this machine's own needs keys, or `anonymous` in
    `[server]`."""

    port: int = attrs.field(default=8000, validator=between(0, 65535))
    """Port to listen on. 0: any that is free."""

    allowed_hosts: tuple[str, ...] = attrs.field(
        default=(), validator=Check('such as "llm.example", without a port', _are_hosts)
    )
    """Names by which the server may be called: on loopback besides its own; elsewhere nothing but
    these, once there are any."""

    allowed_origins: tuple[str, ...] = attrs.field(
        default=(), validator=Check('such as "https://chat.example"', _are_origins)
    )
    """Origins of web pages that may call it, besides pages of its own host and port."""

    max_connections: int = attrs.field(default=16_384, validator=at_least(1))
    """Connections open at once; fewer where the process may not have so many files open."""

    keepalive_s: float = attrs.field(default=75.0, validator=at_least(0.001))
    """For the head of a connection's next request to arrive."""

    body_timeout_s: float = attrs.field(default=30.0, validator=at_least(0.001))
    """For a request's body, or a WebSocket message, to arrive."""

    max_body: Size = attrs.field(default=DEFAULT_SIZE, validator=at_least(1))
    """Of one request's body."""

    max_bodies: Size = attrs.field(default=Size(256 * 2**20), validator=at_least(1))
    """Of all bodies that are being read or tokenised at once; when it is less than `max_body`, that
    counts."""

    max_prompts: int = attrs.field(default=1024, validator=at_least(1))
    """Prompts of one request. Times its `n` they may be as many as the larger of `max_prompts` and
    `max_n`."""

    max_n: int = attrs.field(default=128, validator=at_least(1))
    """Outputs of one prompt, `n`."""

    headers_after_s: float = attrs.field(default=10.0, validator=at_least(0))
    """A stream's HTTP status is decided by its first token, or by then: what fails later is told in
    an event."""

    heartbeat_s: float = attrs.field(default=15.0, validator=at_least(0))
    """A stream of events is never silent for longer. 0: it may be."""

    max_pending_bytes: Size = attrs.field(default=Size(64 * 2**10), validator=at_least(1))
    """Of a client that lags, what waits in its connection's buffer, one write more at most."""

    max_pending_tokens: int = attrs.field(default=1024, validator=at_least(1))
    """Of a stream whose client lags, tokens that wait behind that; then its sequence is paused."""

    stall_timeout_s: float = attrs.field(default=30.0, validator=at_least(0.001))
    """A connection that takes nothing for so long has its requests cancelled; once more, and it is
    closed."""

    drain_timeout_s: float = attrs.field(default=300.0, validator=at_least(0.001))
    """The same for one that takes less than three quarters of its buffer in so long."""

    ws_heartbeat_s: float = attrs.field(default=30.0, validator=at_least(0))
    """A WebSocket is pinged so often. 0: never."""

    ws_max_message: Size = attrs.field(default=DEFAULT_SIZE, validator=at_least(1))
    """Of one message on a WebSocket."""

    ws_max_requests: int = attrs.field(default=256, validator=at_least(1))
    """Requests at once on one WebSocket."""

    def patience(self) -> ReaderPatience:
        """With one connection's reader."""
        return ReaderPatience(self.stall_timeout_s, self.drain_timeout_s)
