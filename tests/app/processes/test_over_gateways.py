"""What holds for a tenant or a request, whichever gateway its client came to."""

import os
import signal
from contextlib import AsyncExitStack

import anyio

from plancha.access import key_hash
from server_clients import Stream, answered, client_of, complete, sessions
from server_processes import Server

KEY = "sk-acme"


async def test_a_request_is_readable_and_cancellable_through_every_gateway(server: Server) -> None:
    one, other = server.gateways().values()
    stream = Stream()
    async with (
        client_of(server, one) as owner,
        client_of(server, other) as stranger,
        anyio.create_task_group() as clients,
    ):
        clients.start_soon(stream.run, owner, 3000)
        await server.until(lambda: stream.tokens)
        async with stranger.get(f"/v1/requests/{stream.id}") as response:
            assert (response.status, (await response.json())["status"]) == (200, "generating")
        async with stranger.get(f"/v1/requests/{stream.id}/usage") as response:
            usage = await response.json()
            assert usage["input_tokens"] == 1
            assert 1 <= usage["output_tokens"] < 3000
        async with stranger.get(f"/v1/requests/{stream.id[:-4]}0000") as response:
            assert response.status == 404
        async with stranger.post(f"/v1/requests/{stream.id}/cancel") as response:
            assert response.status == 200
        await server.until(lambda: stream.end)
        async with stranger.get(f"/v1/requests/{stream.id}") as response:
            told = await response.json()
    assert (stream.end, stream.error["code"]) == ("error", "request_cancelled")
    assert (told["status"], told["outcome"]) == ("done", "cancelled")


async def test_limits_are_counted_for_all_gateways_and_reloaded_in_all(server: Server) -> None:
    before = server.file.read_text()
    one, other = server.gateways().values()
    streams = [Stream(), Stream()]
    async with (
        client_of(server, one) as first,
        client_of(server, other) as second,
        sessions(server) as anyone,
        anyio.create_task_group() as clients,
    ):
        acme = f'[tenants.acme]\nkeys = ["{key_hash(KEY.encode())}"]\nretention = "none"\n'
        acme += "max_running = 1\n"
        server.file.write_text(before + acme)
        server.process.send_signal(signal.SIGHUP)
        for client in (first, second):
            await answered(client, "/v1/models", 401)
            client.headers["Authorization"] = f"Bearer {KEY}"

        for client, stream in zip((first, second), streams, strict=True):
            clients.start_soon(stream.run, client, 200)
        await server.until(lambda: all(stream.end for stream in streams))
        events = [(line.get("event"), line.get("id")) for line in list(server.lines)]
        early, late = sorted(streams, key=lambda each: events.index(("joined", each.id)))
        assert events.index(("removed", early.id)) < events.index(("joined", late.id))

        server.file.write_text(before + "[tenants.acme]\nretention = 'none'\nweight = -1\n")
        server.process.send_signal(signal.SIGHUP)
        (line,) = await server.until(lambda: server.told("reload_refused"))
        assert (line["process"], "tenants.acme.weight" in str(line["problems"])) == ("parent", True)
        assert (await complete(first, 1))["usage"]["completion_tokens"] == 1  # the key still holds

        server.file.write_text(before)
        server.process.send_signal(signal.SIGHUP)
        for client in (first, second):
            del client.headers["Authorization"]
            await answered(client, "/v1/models", 200)
        assert (await complete(anyone, 1))["usage"]["completion_tokens"] == 1


async def test_queues_and_tokens_a_minute_are_counted_for_all_gateways_and_workers(
    server: Server,
) -> None:
    before = server.file.read_text()
    found = len(server.told("worker_found"))
    os.kill(server.pid("worker"), signal.SIGKILL)
    server.file.write_text(
        f"""{before}
        [tenants.acme]
        retention = "none"
        keys = ["{key_hash(KEY.encode())}"]
        tokens_per_minute = 100
        [tenants.busy]
        retention = "none"
        keys = ["{key_hash(b"sk-busy")}"]
        max_running = 1
        max_waiting = 1
        """
    )
    server.process.send_signal(signal.SIGHUP)  # while there is no worker
    await server.until(lambda: len(server.told("worker_found")) == found + 2)
    one, other = server.gateways().values()
    async with AsyncExitStack() as clients:
        server.key = KEY
        first = await clients.enter_async_context(client_of(server, one))
        second = await clients.enter_async_context(client_of(server, other))
        await complete(first, 300)
        refused = Stream()
        await refused.run(second, 1)
        assert (refused.status, refused.error["code"]) == (429, "tokens_per_minute")
        owed_s = (300 - 100) * 60 / 100  # and for what `client_of` asked, less what came since
        assert owed_s / 2 < int(refused.headers["Retry-After"]) < 2 * owed_s

        server.key = "sk-busy"
        first = await clients.enter_async_context(client_of(server, one))
        second = await clients.enter_async_context(client_of(server, other))
        third = await clients.enter_async_context(client_of(server, other))
        runs, waits, refused = Stream(), Stream(), Stream()
        added = len(server.told("added"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(runs.run, first, 3000)
            await server.until(lambda: runs.tokens)
            tasks.start_soon(waits.run, second, 1)
            await server.until(lambda: len(server.told("added")) == added + 2)
            await refused.run(third, 1)
            assert (refused.status, refused.error["code"]) == (429, "tenant_queue_full")
            async with third.post(f"/v1/requests/{runs.id}/cancel") as response:
                assert response.status == 200
        assert (waits.end, waits.tokens) == ("done", 1)

    server.key = None
    server.file.write_text(before)
    server.process.send_signal(signal.SIGHUP)
    async with sessions(server) as anyone:
        for _ in range(2):
            await answered(anyone, "/v1/models", 200)
