"""A worker's ledger, from before its model is loaded until after its last request."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import structlog

from plancha.accounting.accounting import NoLedger
from plancha.ledger import Ledger, LedgerError
from plancha_app.deployment import Deployment
from plancha_ledger.opening import open_ledger

log = structlog.get_logger()

CLOSING_S = 5.0
"""For giving up the writer's lock; what is written is durable without."""


@asynccontextmanager
async def ledger_of(deployment: Deployment) -> AsyncIterator[Ledger]:
    """The ledger of `[ledger]`, or one that writes nothing down where there is no such table.

    Raises `LoadError` with what the operator can do.
    """
    if deployment.ledger is None:
        yield NoLedger()
        return
    ledger = await open_ledger(deployment.ledger)
    try:
        yield ledger
    finally:
        with anyio.move_on_after(CLOSING_S, shield=True):
            try:
                await ledger.close()
            except LedgerError as error:
                log.warning("ledger_not_closed", reason=str(error))
