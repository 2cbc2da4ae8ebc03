"""What a worker's process tells a scraper, by way of whichever gateway it asked."""

import asyncio
from concurrent.futures import Future
from threading import Thread

import anyio
import attrs
import structlog
from prometheus_client import CollectorRegistry, generate_latest

from plancha.messages import Answer, Ask

log = structlog.get_logger()

PATIENCE_S = 1.0
"""For the collectors that may take their time; without them the rest is told."""


@attrs.define(eq=False)
class Figures:
    """Two registries: of what only the event loop may look at, and of what may take its time.

    Collectors of `blocking` ask the system or a driver, which may hang. They are run on a thread,
    and as long as that has not come back there is no other.
    """

    on_loop: CollectorRegistry = attrs.field(factory=CollectorRegistry)
    blocking: CollectorRegistry = attrs.field(factory=CollectorRegistry)
    _asked: "Future[bytes] | None" = attrs.field(default=None, init=False)

    async def answer(self, ask: Ask) -> Answer:
        """All of them, in the text format 0.0.4."""
        text = generate_latest(self.on_loop)
        try:
            with anyio.move_on_after(PATIENCE_S):
                text += await self._blocking()
        except Exception:  # a collector's bug; the others' figures matter more then than ever
            log.exception("figures_failed")
        return Answer(ask.number, content=text)

    async def _blocking(self) -> bytes:
        if self._asked is None or self._asked.done():
            self._asked = _rendered(self.blocking)
        return await asyncio.shield(asyncio.wrap_future(self._asked))


def _rendered(registry: CollectorRegistry) -> "Future[bytes]":
    """On a thread that no process waits for when it ends."""
    future: Future[bytes] = Future()

    def run() -> None:
        try:
            future.set_result(generate_latest(registry))
        except Exception as error:
            future.set_exception(error)

    Thread(target=run, name="figures", daemon=True).start()
    return future
