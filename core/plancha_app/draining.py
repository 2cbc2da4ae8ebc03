"""How a gateway's process comes to its end: what runs may finish, for a while."""

import anyio
import structlog

from plancha.failure import SHUTTING_DOWN
from plancha.gateway import Gateway

log = structlog.get_logger()


async def drain(gateway: Gateway, timeout_s: float) -> None:
    """Take nothing new, end what waits, and let what runs finish, for so long at most."""
    gateway.refuse("draining", "it is shutting down")
    gateway.fail_queued(SHUTTING_DOWN)
    log.info("draining", running=gateway.running, timeout_s=timeout_s)
    with anyio.move_on_after(timeout_s):
        while gateway.running:  # noqa: ASYNC110  (once per process: not worth an event)
            await anyio.sleep(0.02)


def end_streams(gateway: Gateway) -> None:
    """Whatever still runs ends with an error, which the transports let their clients read."""
    if gateway.running:
        log.warning("ending_streams", running=gateway.running)
    gateway.fail_all(SHUTTING_DOWN)
