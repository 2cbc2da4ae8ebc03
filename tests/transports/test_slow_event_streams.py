"""Clients that read slowly or not at all: bounded memory, nothing lost, an end in any case."""

from collections.abc import Iterator
from typing import Any

import anyio
import orjson
import pytest

from plancha_transports.delivery import TOKENS_AT_ONCE
from plancha_transports.socket_writer import SocketWriter
from slow_readers import (
    CHARACTERS,
    LETTERS,
    LIMITS,
    PENDING_BYTES,
    PENDING_TOKENS,
    SMALL,
    STREAMS,
    TOKENS,
    LongText,
    all_paused,
    ask,
    events_of,
    is_reset,
    letters,
    slow_reader,
    talkative,
    text_of,
)

READERS = 50
IN_FLIGHT = 4  # steps that were under way when a stream was paused


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[SocketWriter]]:
    """Every writer that sent something."""
    found: set[SocketWriter] = set()
    send = SocketWriter.send

    def noticed(self: SocketWriter, data: bytes) -> None:
        found.add(self)
        send(self, data)

    monkeypatch.setattr(SocketWriter, "send", noticed)
    yield found


def buffered(writer: SocketWriter) -> int:
    return writer.transport().get_write_buffer_size()


async def test_fifty_readers_that_stop_cost_little_and_hold_up_nobody(
    serve: Any, until: Any, writers: set[SocketWriter]
) -> None:
    async with serve(talkative(), text=LongText(), limits=LIMITS, **SMALL) as server:
        stopped: list[str] = []
        answers: list[tuple[str, list[Any]]] = []
        go_on = anyio.Event()

        async def stop_reading_for_a_while(path: str, body: Any) -> None:
            async with slow_reader(server) as reader:
                await ask(reader, path, body)
                await reader.read(1024)
                stopped.append(path)
                await go_on.wait()
                reader.hurry()
                answers.append((path, events_of(await reader.read_to(b"\r\n0\r\n\r\n"))))

        async with anyio.create_task_group() as tasks:
            for number in range(READERS):
                tasks.start_soon(stop_reading_for_a_while, *STREAMS[number % len(STREAMS)])
            await until(lambda: len(stopped) == READERS)
            events = await server.events(*STREAMS[1])
            assert letters(text_of([data for _, data in events if data != "[DONE]"])) == LETTERS
            await until(all_paused(server, READERS))
            for generation in server.gateway.outboxes.running.values():
                (stream,) = generation.streams
                assert PENDING_TOKENS <= len(stream.tokens) <= PENDING_TOKENS + IN_FLIGHT
            lagging = [writer for writer in writers if writer.full()]
            assert len(lagging) == READERS
            most = PENDING_BYTES + 2 * CHARACTERS  # the event that filled it, with its frame
            assert all(buffered(writer) <= most for writer in lagging)
            go_on.set()

        for path, found in answers:
            assert letters(text_of(found)) == LETTERS
            most_at_once = max(len(text_of([event])) for event in found) // CHARACTERS
            assert most_at_once == 1 if path == "/generate" else 1 < most_at_once <= TOKENS_AT_ONCE
        await server.quiet()
        records = server.gateway._records.values()
        assert [record.outcome for record in records] == ["completed"] * (READERS + 1)


@pytest.mark.parametrize(("path", "body"), STREAMS)
async def test_a_reader_that_takes_nothing_for_too_long_is_told_so_when_it_reads(
    serve: Any, until: Any, path: str, body: Any
) -> None:
    options = {**SMALL, "stall_timeout_s": 0.1}
    async with (
        serve(talkative(), text=LongText(), limits=LIMITS, **options) as server,
        slow_reader(server) as reader,
    ):
        await ask(reader, path, body)
        await reader.read(1024)
        (record,) = server.gateway._records.values()
        await until(lambda: record.state == "done")
        assert record.outcome == "stalled"
        await server.quiet()
        answer = await reader.read_to(b"\r\n0\r\n\r\n")
        *tokens, last = events_of(answer)
        assert last["error"]["code"] == "stalled"
        assert "0.1 s" in last["error"]["message"]
        assert all("error" not in event for event in tokens)
        seen = letters(text_of(tokens))
        assert seen == LETTERS[: len(seen)]
        assert b"[DONE]" not in answer
        assert len(seen) < record.output_tokens < TOKENS


async def test_a_reader_that_never_comes_back_is_cut_off(serve: Any, until: Any) -> None:
    options = {**SMALL, "stall_timeout_s": 0.05}
    async with (
        serve(talkative(), text=LongText(), limits=LIMITS, **options) as server,
        slow_reader(server) as reader,
    ):
        await ask(reader, *STREAMS[0])
        await reader.read(1024)
        (record,) = server.gateway._records.values()
        await until(lambda: record.outcome == "stalled")
        await until(lambda: is_reset(reader))
        assert not reader.received.endswith(b"\r\n0\r\n\r\n")
        await server.quiet()


async def test_a_reader_that_takes_a_little_now_and_then_is_told_so_too(
    serve: Any, until: Any
) -> None:
    options = {**SMALL, "stall_timeout_s": 3600, "drain_timeout_s": 0.3}
    async with (
        serve(talkative(), text=LongText(), limits=LIMITS, **options) as server,
        slow_reader(server) as reader,
    ):
        await ask(reader, *STREAMS[0])
        await reader.read(1024)
        (record,) = server.gateway._records.values()
        while record.state != "done":
            await reader.read(16)
            await anyio.sleep(0.01)
        assert record.outcome == "stalled"
        await server.quiet()
        last = events_of(await reader.read_to(b"\r\n0\r\n\r\n"))[-1]
        assert last["error"]["code"] == "stalled"
        assert "too little for 0.3 s" in last["error"]["message"]


async def test_a_whole_answer_is_never_paused(serve: Any, until: Any) -> None:
    async with serve(talkative(), text=LongText(), limits=LIMITS, **SMALL) as server:
        body = {**STREAMS[1][1], "stream": False}
        async with slow_reader(server) as reader:
            await ask(reader, "/v1/completions", body)
            await until(lambda: len(server.gateway._records) == 1)
            (record,) = server.gateway._records.values()
            await until(lambda: record.state == "done")
            assert record.outcome == "completed"
            answer = (await reader.read_to(b"}")).partition(b"\r\n\r\n")[2]
        assert letters(orjson.loads(answer)["choices"][0]["text"]) == LETTERS


async def test_events_to_an_old_client_are_not_chunked(serve: Any, says: Any, connect: Any) -> None:
    async with serve(says("Hi")) as server, connect(server) as client:
        data = orjson.dumps({"prompt": "x"})
        await client.send(
            b"POST /generate HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(data), data)
        )
        answer = await client.receive_all()
        head, _, body = answer.partition(b"\r\n\r\n")
        assert b"chunked" not in head
        assert body.startswith(b"data: {")
        assert body.endswith(b"\n\n")
        assert b"event: done" in body


async def test_an_event_that_cannot_be_made_ends_its_own_stream_with_an_error(
    serve: Any, emits: Any, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from plancha_transports.generate_door import TokenEvents

    make, made = TokenEvents.token, []

    def fall_over(self: TokenEvents, token: int, text: str) -> bytes:
        made.append(token)
        if len(made) > 2:
            raise ZeroDivisionError("secret")
        return make(self, token, text)

    monkeypatch.setattr(TokenEvents, "token", fall_over)
    async with serve(emits(65)) as server:
        events = await server.events("/generate", {"prompt": "x", "max_tokens": 50})
        assert events[-1][0] == "error"
        assert events[-1][1]["error"]["code"] == "engine_error"
        assert [name for name, _ in events[:-1]] == [None] * (len(events) - 1)
        await server.quiet()
        (record,) = server.gateway._records.values()
        await until(lambda: record.outcome == "failed")
