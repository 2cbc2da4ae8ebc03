"""What connects a gateway to its worker, whatever lies between: the same event loop or a socket.

The worker's end needs no protocol: it is two bounded channels (see `kernel`), which a link fills
and empties. Conformance suite: `plancha.testing.link_conformance`.
"""

from collections.abc import AsyncIterator
from typing import Protocol

from plancha.messages import ToGateway, ToWorker


class LinkLost(Exception):
    """The other side is gone, or what it says makes no sense. Says why; holds nothing it sent."""


class Sender(Protocol):
    """Where a gateway's messages to its worker go. The sending end of a channel is one."""

    async def send(self, item: ToWorker, /) -> None:
        """Hand over, in order, waiting while the worker is behind. A cancelled call sends nothing
        or all of it.

        Raises `LinkLost` when the worker is gone.
        """
        ...

    def send_nowait(self, item: ToWorker, /) -> None:
        """As `send`, without waiting; for what goes before everything else on a new link."""
        ...


class Link(Sender, Protocol):
    """A gateway's end. Iterate to receive, in order; the iteration ends when the worker is gone."""

    def __aiter__(self) -> AsyncIterator[ToGateway]: ...
