"""Sockets whose clients read slowly or not at all: all of their requests wait, and all end."""

from typing import Any

from slow_readers import (
    LETTERS,
    LIMITS,
    SMALL,
    STREAMS,
    TOKENS,
    LongText,
    all_paused,
    client_frame,
    is_reset,
    letters,
    read_messages,
    slow_reader,
    talkative,
    text_of,
    upgrade,
)


async def test_a_slow_socket_pauses_all_its_requests_and_they_all_come_to_their_end(
    serve: Any, until: Any
) -> None:
    async with (
        serve(talkative(), text=LongText(), limits=LIMITS, **SMALL) as server,
        slow_reader(server) as reader,
    ):
        await upgrade(reader)
        for name in "abc":
            message = {"type": "generate", "id": name, "prompt": name, "max_tokens": TOKENS}
            await reader.send(client_frame(message))
        await until(lambda: len(server.gateway._records) == 3)
        await until(all_paused(server, 3))
        events = await server.events(*STREAMS[0])
        assert letters(text_of([data for name, data in events if name is None])) == LETTERS
        messages = await read_messages(reader, "done", 3)
        for name in "abc":
            own = [message for message in messages if message["id"] == name]
            assert letters(text_of(own)) == LETTERS
            assert (own[0]["type"], own[-1]["type"]) == ("queued", "done")
            assert "tokens" in {message["type"] for message in own}
            counted = [message for message in own if message["type"] in ("token", "tokens")]
            indexes = [message["index"] for message in counted]
            sizes = [len(message.get("tokens", "1")) for message in counted]
            assert indexes == [sum(sizes[:place]) for place in range(len(sizes))]
        await server.quiet()


async def test_a_stalled_socket_ends_each_of_its_requests_with_an_error(
    serve: Any, until: Any
) -> None:
    options = {**SMALL, "stall_timeout_s": 0.1}
    async with (
        serve(talkative(), text=LongText(), limits=LIMITS, **options) as server,
        slow_reader(server) as reader,
    ):
        await upgrade(reader)
        for name in "ab":
            message = {"type": "generate", "id": name, "prompt": name, "max_tokens": TOKENS}
            await reader.send(client_frame(message))
        await until(lambda: len(server.gateway._records) == 2)
        records = server.gateway._records.values()
        await until(lambda: all(record.state == "done" for record in records))
        assert {record.outcome for record in records} == {"stalled"}
        messages = await read_messages(reader, "error", 2)
        ends = [message for message in messages if message["type"] == "error"]
        assert sorted(message["id"] for message in ends) == ["a", "b"]
        assert {message["error"]["code"] for message in ends} == {"stalled"}
        reader.received = b""
        await reader.send(
            client_frame({"type": "generate", "id": "a", "prompt": "x", "max_tokens": 2})
        )
        assert (await read_messages(reader, "done", 1))[-1]["id"] == "a"
        await server.quiet()


async def test_a_socket_whose_reader_never_comes_back_is_cut_off(serve: Any, until: Any) -> None:
    options = {**SMALL, "stall_timeout_s": 0.05}
    async with (
        serve(talkative(), text=LongText(), limits=LIMITS, **options) as server,
        slow_reader(server) as reader,
    ):
        await upgrade(reader)
        await reader.send(
            client_frame({"type": "generate", "id": "a", "prompt": "x", "max_tokens": TOKENS})
        )
        await until(lambda: len(server.gateway._records) == 1)
        (record,) = server.gateway._records.values()
        await until(lambda: record.outcome == "stalled")
        await until(lambda: is_reset(reader))
        await server.quiet()
