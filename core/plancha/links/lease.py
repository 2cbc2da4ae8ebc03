"""How long a gateway may say nothing."""

import anyio
import attrs

from plancha.links.link import LinkLost

LOOKS = 5
"""In a row, at which nothing had come, are the end of a lease."""


@attrs.define(eq=False)
class Lease:
    """A gateway's, which says something every few seconds.

    Looks are counted and no seconds, so that nobody is given up since the worker itself, or the
    whole machine, stood still.
    """

    lease_s: float
    _silent: int | None = attrs.field(default=None, init=False)  # looks; None: nobody listens

    def listening(self) -> None:
        """From now on what it says would be heard."""
        self._silent = 0

    def heard(self) -> None:
        """It has said something, and it takes the worker what time it takes to see to that."""
        self._silent = None

    async def watching(self) -> None:
        """Task: until the lease has expired, and then raises `LinkLost`."""
        while self._silent is None or self._silent <= LOOKS:
            await anyio.sleep(self.lease_s / LOOKS)
            if self._silent is not None:
                self._silent += 1
        raise LinkLost(f"it has said nothing for {self.lease_s:g} s")
