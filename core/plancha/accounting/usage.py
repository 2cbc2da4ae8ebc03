"""What the ledger says of a request that no gateway knows any more."""

import attrs
import structlog

from plancha.failure import Failure
from plancha.ledger import Ledger, LedgerError
from plancha.messages import Answer, Ask

log = structlog.get_logger()

UNREADABLE = Failure(
    "unavailable", "The ledger cannot be read at the moment; try again.", None, "ledger_unavailable"
)


@attrs.frozen(eq=False)
class Usage:
    """Answers from the ledger. Another tenant's request is as unknown as one that never was."""

    ledger: Ledger

    async def answer(self, ask: Ask) -> Answer:
        """The record of the request that is asked about, if there is one."""
        try:
            record = await self.ledger.find(ask.request_id)
        except LedgerError as error:
            log.warning("ledger_not_read", reason=str(error))
            return Answer(ask.number, failure=UNREADABLE)
        if record is None or not (ask.any_tenant or record.tenant == ask.tenant):
            return Answer(ask.number)
        return Answer(ask.number, record)
