"""Requests are traced for as long as a gateway lives, if the deployment says so."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread

from plancha.gateway import Gateway
from plancha_app.tracing_table import TracingTable

LAST_S = 3.0
"""To send the last spans when a gateway ends."""


@asynccontextmanager
async def traced(gateway: Gateway, table: TracingTable) -> AsyncIterator[None]:
    """With an endpoint its requests have spans; without one nothing is even imported."""
    if table.endpoint is None:
        yield
        return
    from plancha_app.open_telemetry import OpenTelemetrySpans, provider_of

    provider = provider_of(table.endpoint, table.ratio, gateway.name)
    gateway.spans = OpenTelemetrySpans(provider, gateway.model)
    try:
        yield
    finally:
        gateway.spans = None
        with anyio.move_on_after(LAST_S, shield=True):
            await anyio.to_thread.run_sync(provider.shutdown, abandon_on_cancel=True)
