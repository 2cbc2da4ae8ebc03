"""What a worker's process tells a scraper, by way of whichever gateway it asked."""

import anyio
import anyio.to_thread
import attrs
from prometheus_client import CollectorRegistry, generate_latest

from plancha.messages import Answer, Ask

PATIENCE_S = 1.0
"""For the collectors on the thread; without them the rest is told."""


@attrs.frozen(eq=False)
class Figures:
    """Two registries: of what only the event loop may look at, and of what may take its time.

    Collectors of `blocking` ask the system or a driver, which may hang: they are run on a thread,
    one scrape's at a time.
    """

    on_loop: CollectorRegistry = attrs.field(factory=CollectorRegistry)
    blocking: CollectorRegistry = attrs.field(factory=CollectorRegistry)
    _threads: anyio.CapacityLimiter = attrs.field(factory=lambda: anyio.CapacityLimiter(1))

    async def answer(self, ask: Ask) -> Answer:
        """All of them, in the text format 0.0.4."""
        text = generate_latest(self.on_loop)
        with anyio.move_on_after(PATIENCE_S):
            text += await anyio.to_thread.run_sync(
                generate_latest, self.blocking, abandon_on_cancel=True, limiter=self._threads
            )
        return Answer(ask.number, content=text)
