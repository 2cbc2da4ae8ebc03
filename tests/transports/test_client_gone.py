"""A client that leaves takes its request with it, whatever it was waiting for."""

from typing import Any

import pytest

from plancha.testing.embedded import Limits
from plancha.testing.gate import GatedExecutor

PROMPT = "x" * 33
STREAMS = [
    ("/generate", {"prompt": PROMPT, "max_tokens": 200}),
    ("/v1/completions", {"prompt": PROMPT, "max_tokens": 200, "stream": True}),
    (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": PROMPT}], "stream": True},
    ),
]
WHOLE = [(path, {**body, "stream": False}) for path, body in STREAMS[1:]]


async def leave(client: Any, how: str) -> None:
    await (client.reset() if how == "reset" else client.close())


@pytest.mark.parametrize(("path", "body"), STREAMS)
@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_reader_that_leaves_after_the_first_event(
    serve: Any, emits: Any, connect: Any, until: Any, path: str, body: Any, how: str
) -> None:
    gated = GatedExecutor(emits(65))
    async with serve(gated) as server, connect(server) as client:
        await client.post(path, body)
        await gated.run(1)
        await client.receive_until(b'"A"')
        await gated.started()  # held: nothing is written to anybody any more
        await leave(client, how)
        (record,) = server.gateway._records.values()
        await until(lambda: record.state == "done")
        assert record.outcome == "cancelled"
        assert record.output_tokens == 1
        gated.commit()
        await server.quiet()
        assert record.output_tokens == 1
        gated.open()
        status, answer = await server.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 3})
        assert (status, answer["choices"][0]["text"]) == (200, "AAA")


@pytest.mark.parametrize(("path", "body"), STREAMS + WHOLE)
@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_caller_that_leaves_before_any_answer(
    serve: Any, emits: Any, connect: Any, until: Any, path: str, body: Any, how: str
) -> None:
    gated = GatedExecutor(emits(65))
    async with serve(gated) as server, connect(server) as client:
        await client.post(path, body)
        await gated.started()
        await leave(client, how)
        (record,) = server.gateway._records.values()
        await until(lambda: record.state == "done")
        assert record.outcome == "cancelled"
        gated.commit()
        await server.quiet()


async def test_all_prompts_of_a_caller_that_leaves_end(
    serve: Any, emits: Any, connect: Any, until: Any
) -> None:
    gated = GatedExecutor(emits(65))
    async with serve(gated) as server, connect(server) as client:
        await client.post("/v1/completions", {"prompt": ["a", "b", "c"], "max_tokens": 200})
        plan = await gated.started()
        assert len(plan.joins) == 3
        await client.close()
        (record,) = server.gateway._records.values()
        await until(lambda: record.state == "done")
        gated.commit()
        await server.quiet()
        assert record.outcome == "cancelled"


async def test_one_that_leaves_while_it_waits_in_the_queue(
    serve: Any, emits: Any, connect: Any, until: Any
) -> None:
    gated = GatedExecutor(emits(65))
    limits = Limits(max_sequences=1)
    async with (
        serve(gated, limits=limits) as server,
        connect(server) as first,
        connect(server) as second,
    ):
        body = {"prompt": "x", "max_tokens": 200, "stream": True}
        await first.post("/v1/completions", body)
        await gated.started()
        await second.post("/v1/completions", body)
        await until(lambda: len(server.gateway._records) == 2)
        waiting = list(server.gateway._records.values())[1]
        await second.close()
        await until(lambda: waiting.state == "done")
        assert (waiting.outcome, waiting.input_tokens, waiting.output_tokens) == ("cancelled", 0, 0)
        await first.close()
        gated.open()
        await server.quiet()


async def test_a_client_that_goes_in_the_middle_of_its_body(
    serve: Any, emits: Any, connect: Any
) -> None:
    async with serve(emits(65)) as server, connect(server) as client:
        await client.send(
            b"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 100\r\n\r\n{"
        )
        await client.reset()
        assert (await server.post("/v1/completions", {"prompt": "x"}))[0] == 200
        assert len(server.gateway._records) == 1
