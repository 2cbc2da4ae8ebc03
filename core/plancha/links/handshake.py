"""How a gateway and its worker begin to talk over a socket."""

import attrs

from plancha.messages import Answer, Ask, Controls, Frame, Rejected, Reload, Settled, Submit

VERSION = 1
"""Of all that is said on a socket; both sides come from one installation, so one is enough."""

PREAMBLE = b"plancha" + bytes([VERSION])
"""What each side sends first, and must hear before it reads anything else."""

HANDSHAKE_S = 10.0
MAX_HELLO = 2**16
"""Bytes of a message from somebody whose name is not known yet."""


@attrs.frozen
class Hello:
    """A gateway's name, which the ids of its requests hold."""

    gateway: str


@attrs.frozen
class Welcome:
    """The worker takes requests; the gateway numbers its streams from `first_stream` on."""

    first_stream: int
    context_length: int
    model: str  # the checkpoint's path, for the tokenizer


KINDS = (Submit, Controls, Reload, Frame, Settled, Rejected, Ask, Answer, Hello, Welcome)
"""Everything a socket may bring."""
