"""A stop with all there is at the time: streams short and long, a queue, an idle connection."""

import signal
from pathlib import Path

import aiohttp
import anyio
import pytest

from plancha_ledger.reading import sound, stored_in
from plancha_ledger.totals import billed
from server_clients import Stream, answered, sessions
from server_processes import ended, started

SLOTS = 8  # of the batch


@pytest.mark.parametrize("gateways", [0, 1])
async def test_what_can_end_in_time_does_and_all_else_is_told(
    tmp_path: Path, gateways: int
) -> None:
    settings = "drain_timeout_s = 5"
    ledger = "[ledger]"
    with started(tmp_path, gateways=gateways, server=settings, more=ledger) as server:
        await server.until(lambda: server.said)
        short, longs = Stream(), [Stream() for _ in range(SLOTS - 1)]
        queued = [Stream(), Stream()]
        keeping = aiohttp.TCPConnector(limit=1)
        async with (
            sessions(server) as session,
            aiohttp.ClientSession(server.url, connector=keeping) as idle,
            anyio.create_task_group() as clients,
        ):
            await answered(idle, "/health/live", 200)
            clients.start_soon(short.run, session, 40)
            for stream in longs:
                clients.start_soon(stream.run, session, 4000)
            await server.until(lambda: short.tokens and all(stream.tokens for stream in longs))
            for stream in queued:
                clients.start_soon(stream.run, session, 40)
            await server.until(lambda: len(server.told("added")) == SLOTS + 2)

            server.process.send_signal(signal.SIGTERM)
            await answered(session, "/health/ready", 503)
            async with session.get("/health/ready") as response:
                assert (await response.json())["status"] == "draining"
            await answered(session, "/health/live", 200)
            async with session.post("/v1/completions", json={"prompt": "x"}) as response:
                assert (response.status, response.headers["Connection"]) == (503, "close")
            await server.until(lambda: all(stream.end for stream in queued))
            assert not any(stream.end for stream in longs)
        await ended(server, 0)
    assert [(stream.status, stream.error["code"]) for stream in queued] == [(503, "draining")] * 2
    assert (short.end, short.tokens) == ("done", 40)
    assert [(stream.end, stream.error["code"]) for stream in longs] == [
        ("error", "draining") for _ in longs
    ]
    rows = {
        entry.request: entry for entry in billed(sound(stored_in(str(tmp_path / "ledger.sqlite"))))
    }
    assert len(rows) == SLOTS + 2
    assert (rows[short.id].kind, rows[short.id].outcome) == ("close", "completed")
    assert rows[short.id].output_tokens == 40
    for stream in longs:
        row = rows[stream.id]
        assert (row.kind, row.outcome) == ("close", "failed")
        assert row.output_tokens is not None and stream.tokens <= row.output_tokens < 4000
    unbegun = rows.keys() - {stream.id for stream in (short, *longs)}
    for request in unbegun:
        assert (rows[request].kind, rows[request].output_tokens) == ("close", 0)
