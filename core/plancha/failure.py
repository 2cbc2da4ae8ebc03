"""Why a request was refused or broke off, in words a client may see.

Failures cross channels as data (`Failure`); inside a gateway they travel as the exception
`RequestFailed`. Transports turn `kind` into their own status codes.
"""

from typing import Literal

import attrs

Kind = Literal[
    "invalid",  # the caller's mistake: HTTP 400
    "unauthorized",  # no key, or none that is known: 401
    "forbidden",  # a known tenant that may not: 403
    "not_found",  # unknown model or request id: 404
    "too_large",  # body over the limit: 413
    "media_type",  # not JSON: 415
    "slow",  # the body did not arrive in time: 408
    "cancelled",  # by a call of its own, not by the client leaving: 499
    "busy",  # a queue is full or a quota used up, try again: 429
    "unavailable",  # loading, draining, deadline in the queue: 503
    "timeout",  # the caller's own deadline passed: 504
    "engine",  # our fault: 500
]


@attrs.frozen
class Failure:
    """One client-visible reason. Never holds a prompt, an output, a path or an exception's text."""

    kind: Kind
    message: str
    param: str | None = None
    code: str | None = None
    retry_after_s: int | None = None  # when trying again may do; None: nobody knows


class RequestFailed(Exception):
    """Raised wherever a request can no longer be answered; carries the `Failure` to show."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def invalid(param: str | None, message: str, code: str | None = None) -> RequestFailed:
    """The caller's mistake in field `param`; the message names the value and what is right."""
    return RequestFailed(Failure("invalid", message, param, code))


def engine_error() -> Failure:
    """What a client is told of an internal error: that it happened, and nothing of its insides."""
    return Failure(
        "engine", "The engine failed while generating this answer.", None, "engine_error"
    )


def timed_out(timeout_s: float) -> Failure:
    """The request's own deadline passed."""
    message = f"The request was not finished within its timeout of {timeout_s:g} s."
    return Failure("timeout", message, None, "request_timeout")


SHUTTING_DOWN = Failure("unavailable", "The server is shutting down.", None, "draining")

STALLED = "stalled"


def stalled(timeout_s: float, took: str = "nothing") -> Failure:
    """The client took nothing of its answer, or next to nothing, for so long."""
    message = f"The connection took {took} for {timeout_s:g} s; the answer was broken off."
    return Failure("timeout", message, None, STALLED)
