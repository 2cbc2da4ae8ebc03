"""What a scraper is told of a worker's ledger."""

from collections.abc import Iterator

import attrs
from prometheus_client.core import Metric

from plancha.accounting.journal import Journal
from plancha.metrics.families import gauge, histogram


@attrs.frozen(eq=False)
class LedgerCollector:
    """For a registry that is collected on the event loop of the journal's tasks."""

    journal: Journal

    def collect(self) -> Iterator[Metric]:
        """Called by the registry."""
        yield gauge(
            "ledger_writable",
            "1: usage can be written, or there is no ledger; else new requests are refused.",
            self.journal.writable,
        )
        yield gauge(
            "ledger_pending_records", "Records that are not durable yet.", self.journal.pending
        )
        yield histogram(
            "ledger_write_seconds",
            "Transactions of usage records, from call to durable.",
            self.journal.write_seconds,
        )
