"""A server of its own process over a scripted model: `python scripted_server.py OPTIONS`.

OPTIONS is the transport's table and, under "keys", tenants by their keys, as JSON. The address goes
to stdout once there is one, the log to stderr.
"""

import json
import sys
from typing import Any

import anyio

from plancha.access import Access, key_hash
from plancha.contracts import Geometry
from plancha.options import structure
from plancha.testing.embedded import Limits, embedded
from plancha.testing.executors import ChainExecutor
from plancha_app.logs import configure
from plancha_text.byte_text import byte_text
from plancha_transports.http import HttpTransport
from plancha_transports.options import HttpOptions

GEOMETRY = Geometry(blocks=256, context_length=256, vocabulary=264, stop_ids=(257,))
LIMITS = Limits(max_sequences=8, max_batched_tokens=256, max_waiting=64, block_size=16)


async def serve(table: dict[str, Any]) -> None:
    keys = {key_hash(key.encode()): tenant for key, tenant in table.pop("keys", {}).items()}
    transport = HttpTransport(structure({"port": 0, **table}, HttpOptions, ""))
    executor = ChainExecutor(GEOMETRY)
    async with embedded(executor, byte_text(), limits=LIMITS) as kernel:
        if keys:
            kernel.gateway.access = Access(keys=keys, anonymous=None)
        await transport.run(kernel.gateway, lambda address: print(address, flush=True))


if __name__ == "__main__":
    configure("info", "json")
    anyio.run(serve, json.loads(sys.argv[1]))
