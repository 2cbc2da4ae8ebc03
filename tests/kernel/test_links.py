"""Both links keep the same promises; and what several gateways on one socket may rely on."""

import socket
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.lowlevel
import attrs
import numpy as np
import pytest
from anyio import create_memory_object_stream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from plancha.failure import Failure
from plancha.links import connection, socket_gateways
from plancha.links.handshake import KINDS, PREAMBLE, Hello
from plancha.links.link import LinkLost
from plancha.links.memory_link import MemoryLink
from plancha.links.message_stream import MessageStream
from plancha.links.request_id import gateway_name, new_request_id
from plancha.links.shares import first_stream
from plancha.links.socket_gateways import SocketGateways
from plancha.links.socket_link import SocketLink, connect
from plancha.links.wire import HEADER, Wire
from plancha.messages import (
    Answer,
    Ask,
    Bill,
    Cancel,
    Controls,
    Downstream,
    Frame,
    Joined,
    Logprobs,
    Pause,
    PromptLogprobs,
    Rejected,
    Resume,
    Settled,
    Submit,
    ToGateway,
    Upstream,
)
from plancha.record import Record
from plancha.testing.link_conformance import (
    HANG_S,
    IDLE,
    LINK_PROMISES,
    Ends,
    MakeEnds,
    Promise,
    frame,
    submit,
)

WIRE = Wire(*KINDS)


@attrs.define(kw_only=True, eq=False)
class Hub:
    """A worker's end with nothing behind it: the test plays the worker."""

    path: Path
    upstream: MemoryObjectReceiveStream[Upstream]
    downstream: MemoryObjectSendStream[Downstream]
    tasks: anyio.abc.TaskGroup
    scope: anyio.CancelScope = attrs.field(factory=anyio.CancelScope)
    ended: anyio.Event = attrs.field(factory=anyio.Event)

    async def hear(self) -> Upstream:
        with anyio.fail_after(HANG_S):
            return await self.upstream.receive()

    @asynccontextmanager
    async def gateway(self, name: str | None = None) -> AsyncIterator[SocketLink]:
        """A connected gateway that has asked for its first stream."""
        async with joined(self.path, name or gateway_name(), self.tasks) as (link, _):
            await link.send(submit(link.welcome.first_stream))
            heard = await self.hear()
            assert isinstance(heard, Submit)
            yield link


@asynccontextmanager
async def joined(
    path: Path, name: str, tasks: anyio.abc.TaskGroup
) -> AsyncIterator[tuple[SocketLink, AsyncExitStack]]:
    """A link and its task; closing the stack is as if the gateway's process died."""
    async with AsyncExitStack() as stack:
        link = await stack.enter_async_context(connect(path, name))

        tasks.start_soon(link.beat)
        yield link, stack


@asynccontextmanager
async def listening(path: Path, **options: Any) -> AsyncIterator[Hub]:
    upstream_in, upstream = create_memory_object_stream[Upstream](16)
    downstream_in, downstream = create_memory_object_stream[Downstream](16)
    with upstream_in, upstream, downstream_in, downstream:
        async with anyio.create_task_group() as tasks:
            hub = Hub(path=path, upstream=upstream, downstream=downstream_in, tasks=tasks)
            gateways = SocketGateways(path, model="tiny", context_length=256, **options)

            async def run() -> None:
                with hub.scope:
                    await gateways.run(upstream_in, downstream)
                hub.ended.set()

            tasks.start_soon(run)
            await gateways.listening.wait()
            yield hub
            tasks.cancel_scope.cancel()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "worker"


@pytest.fixture(params=["memory", "socket"])
def make(request: pytest.FixtureRequest, path: Path) -> MakeEnds:
    made: MakeEnds = memory_ends if request.param == "memory" else lambda: socket_ends(path)
    return made


@asynccontextmanager
async def memory_ends() -> AsyncIterator[Ends]:
    upstream_in, upstream = create_memory_object_stream[Upstream](16)
    downstream_in, downstream = create_memory_object_stream[Downstream](16)

    async def lose_gateway() -> None:
        upstream_in.close()
        downstream.close()

    async def lose_worker() -> None:
        upstream.close()
        downstream_in.close()

    with upstream_in, upstream, downstream_in, downstream:
        yield Ends(
            link=MemoryLink(upstream_in, downstream),
            upstream=upstream,
            downstream=downstream_in,
            first_stream=0,
            lose_gateway=lose_gateway,
            lose_worker=lose_worker,
        )


@asynccontextmanager
async def socket_ends(path: Path) -> AsyncIterator[Ends]:
    async with (
        listening(path) as hub,
        joined(path, gateway_name(), hub.tasks) as (link, stack),
    ):

        async def lose_worker() -> None:
            hub.scope.cancel()
            await hub.ended.wait()

        yield Ends(
            link=link,
            upstream=hub.upstream,
            downstream=hub.downstream,
            first_stream=link.welcome.first_stream,
            lose_gateway=stack.aclose,
            lose_worker=lose_worker,
        )


@pytest.mark.parametrize("promise", LINK_PROMISES, ids=lambda promise: promise.__name__)
async def test_a_link_keeps_its_promises(promise: Promise, make: MakeEnds) -> None:
    await promise(make)


async def receive(link: SocketLink, kind: type) -> Any:
    """The next message that is no mere report of the load."""
    with anyio.fail_after(HANG_S):
        async for message in link:
            if not is_load_alone(message):
                assert isinstance(message, kind), message
                return message
    raise AssertionError("the worker is gone")


def is_load_alone(message: ToGateway) -> bool:
    return isinstance(message, Frame) and not (message.streams.size or message.finished)


def large_frame(stream: int, token: int) -> Frame:
    """A hundred kilobytes about one stream."""
    column = np.arange(8_000, dtype=np.float32)
    table = column[:, None]
    prompt = PromptLogprobs(stream, 1, Logprobs(column, table.astype(np.int32), table))
    return attrs.evolve(frame(stream, token), prompt_logprobs=(prompt,))


async def test_each_gateway_hears_of_its_own_streams_and_of_the_load(path: Path) -> None:
    async with listening(path) as hub, hub.gateway() as one, hub.gateway() as other:
        mine, theirs = one.welcome.first_stream, other.welcome.first_stream
        streams = np.array([theirs, mine, theirs + 1], np.int64)
        tokens = np.array([1, 2, 3], np.int32)
        await hub.downstream.send(Frame(streams, tokens, (Joined(mine, 5),), (), IDLE))
        await hub.downstream.send(frame(theirs, 4))

        heard = await receive(one, Frame)
        assert (heard.streams.tolist(), heard.tokens.tolist()) == ([mine], [2])
        assert heard.joined == (Joined(mine, 5),)
        with anyio.fail_after(HANG_S):
            load = await anext(aiter(one))
        assert is_load_alone(load) and isinstance(load, Frame) and load.load == IDLE

        heard = await receive(other, Frame)
        assert (heard.streams.tolist(), heard.tokens.tolist()) == ([theirs, theirs + 1], [1, 3])
        assert heard.joined == ()
        assert (await receive(other, Frame)).tokens.tolist() == [4]


def bill(*streams: int) -> Bill:
    return Bill(
        streams=streams,
        input_tokens=3,
        cached_tokens=0,
        output_tokens=1,
        outcome="completed",
        finished_s=0.25,
    )


async def test_each_gateway_hears_of_its_own_settled_requests(path: Path) -> None:
    async with listening(path) as hub, hub.gateway() as one, hub.gateway() as other:
        first, second = one.welcome.first_stream, other.welcome.first_stream
        bills = bill(first, first + 1), bill(second), bill(first + 2)
        await hub.downstream.send(Settled(bills))

        assert await receive(one, Settled) == Settled((bills[0], bills[2]))
        assert await receive(other, Settled) == Settled((bills[1],))


async def test_a_refusal_reaches_the_gateway_that_asked(path: Path) -> None:
    async with listening(path) as hub, hub.gateway() as one, hub.gateway() as other:
        refusal = Rejected((other.welcome.first_stream,), Failure("busy", "later"))
        await hub.downstream.send(refusal)
        await hub.downstream.send(frame(one.welcome.first_stream, 1))

        assert await receive(other, Rejected) == refusal
        assert (await receive(one, Frame)).tokens.tolist() == [1]


async def test_a_lost_gateway_takes_only_its_own_streams_along(path: Path) -> None:
    async with listening(path) as hub, hub.gateway() as one:
        async with hub.gateway() as other:
            lost = other.welcome.first_stream
            await other.send(submit(lost + 1))
            await hub.hear()
            await hub.downstream.send(Settled((bill(lost),)))
            await receive(other, Settled)

        assert await hub.hear() == Controls((Cancel(lost + 1, "failed"),))
        await hub.downstream.send(frame(one.welcome.first_stream, 9))
        assert (await receive(one, Frame)).tokens.tolist() == [9]


async def test_a_gateway_that_reads_nothing_is_paused_and_holds_up_nobody(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PAUSE_BYTES", 20_000)
    monkeypatch.setattr(socket_gateways, "PAUSE_BYTES", 20_000)
    async with listening(path) as hub, hub.gateway() as slow, hub.gateway() as quick:
        stream = slow.welcome.first_stream
        sent = 0
        paused: list[Upstream] = []
        while not paused:
            with anyio.fail_after(HANG_S):
                await hub.downstream.send(large_frame(stream, sent))
                await hub.downstream.send(frame(quick.welcome.first_stream, sent))
            assert (await receive(quick, Frame)).tokens.tolist() == [sent]
            sent += 1
            await anyio.lowlevel.checkpoint()
            if hub.upstream.statistics().current_buffer_used:
                paused.append(await hub.hear())
        assert paused == [Controls((Pause(stream),))]
        await slow.send(submit(stream + 1))
        assert isinstance(await hub.hear(), Submit)
        assert await hub.hear() == Controls((Pause(stream + 1),))
        await slow.send(Controls((Pause(stream), Resume(stream + 1), Cancel(stream + 7))))
        assert await hub.hear() == Controls((Pause(stream), Cancel(stream + 7)))

        for token in range(sent):  # nothing was lost
            assert (await receive(slow, Frame)).tokens.tolist() == [token]
        assert await hub.hear() == Controls((Resume(stream + 1),))  # the other at its own word


async def test_a_gateway_that_takes_nothing_any_more_is_cut_off(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "DROP_BYTES", 50_000)
    async with listening(path) as hub, hub.gateway() as slow:
        stream = slow.welcome.first_stream
        while not hub.upstream.statistics().current_buffer_used:
            with anyio.fail_after(HANG_S):
                await hub.downstream.send(large_frame(stream, 1))
            await anyio.lowlevel.checkpoint()

        assert await hub.hear() == Controls((Cancel(stream, "failed"),))


async def test_a_gateway_that_says_nothing_loses_its_lease(path: Path) -> None:
    async with listening(path, lease_s=0.05) as hub, await anyio.connect_unix(path) as silent:
        await silent.send(PREAMBLE + WIRE.encode(Hello("silent")))
        first = first_stream(0)
        await silent.send(WIRE.encode(submit(first)))
        assert isinstance(await hub.hear(), Submit)

        assert await hub.hear() == Controls((Cancel(first, "failed"),))
        with anyio.fail_after(HANG_S), pytest.raises(anyio.EndOfStream):
            while True:
                await silent.receive()


async def test_a_worker_that_stood_still_first_hears_what_its_gateways_say(path: Path) -> None:
    lease_s = 0.5
    async with listening(path, lease_s=lease_s) as hub, await anyio.connect_unix(path) as gateway:
        first = first_stream(0)
        await gateway.send(PREAMBLE + WIRE.encode(Hello("g")) + WIRE.encode(submit(first)))
        assert isinstance(await hub.hear(), Submit)
        await anyio.wait_all_tasks_blocked()
        time.sleep(2 * lease_s)  # noqa: ASYNC251  (as a machine that is suspended)
        await anyio.lowlevel.checkpoint()  # all that is due by now is done
        await gateway.send(WIRE.encode(submit(first + 1)))
        assert isinstance(await hub.hear(), Submit)


HELLO = PREAMBLE + WIRE.encode(Hello("g"))


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"plancha\x02" + WIRE.encode(Hello("g")),
        PREAMBLE + b"\xff" * 64,
        PREAMBLE + HEADER.pack(2**20, 10) + b"x" * 100,
        PREAMBLE + WIRE.encode(Controls(())),
        HELLO + b"\xff" * 64,
        HELLO + HEADER.pack(16, 16) + b"[" * 16,
        HELLO + WIRE.encode(submit(first_stream(77))),
        HELLO + WIRE.encode(Rejected((1,), Failure("busy", "no"))),
        HELLO + WIRE.encode(submit(first_stream(1)))[:-3],
    ],
)
async def test_garbage_on_the_socket_is_refused_without_harm(path: Path, garbage: bytes) -> None:
    async with listening(path) as hub, hub.gateway() as good:
        async with await anyio.connect_unix(path) as bad:
            await bad.send(garbage)
            raw = bad.extra(anyio.abc.SocketAttribute.raw_socket)
            raw.shutdown(socket.SHUT_WR)
            with (
                anyio.fail_after(HANG_S),
                pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)),
            ):
                while True:
                    await bad.receive()

        await good.send(submit(good.welcome.first_stream + 1))
        heard = await hub.hear()
        assert isinstance(heard, Submit)
        assert heard.streams == (good.welcome.first_stream + 1,)


@pytest.mark.parametrize("streams", [((7, 7),), ((7,), (7,)), ((7, 8), (8, 9)), ((),)])
async def test_a_gateway_whose_numbers_are_no_streams_is_cut_off(
    path: Path, streams: tuple[tuple[int, ...], ...]
) -> None:
    never = 10 * HANG_S
    async with (
        listening(path, lease_s=never) as hub,
        hub.gateway(),
        await anyio.connect_unix(path) as bad,
    ):
        mine = first_stream(1)
        prompt = submit(mine).request.prompts[0]
        await bad.send(HELLO)
        for numbers in streams:
            request = attrs.evolve(submit(mine).request, prompts=(prompt,) * len(numbers))
            asked = tuple(mine + number for number in numbers)
            await bad.send(WIRE.encode(Submit(request, asked)))

        with anyio.fail_after(HANG_S), pytest.raises(anyio.EndOfStream):
            while True:
                await bad.receive()


async def test_what_is_known_of_a_gateways_streams_goes_with_them(path: Path) -> None:
    stream = first_stream(3)
    alone = connection.Connection(
        number=3, gateway="g", messages=cast(MessageStream, None), control=lambda control: None
    )
    alone.submitted(submit(stream))
    alone.controlled(Controls((Pause(stream),)))
    assert alone.paused == {stream}

    alone.ended([stream])
    alone.controlled(Controls((Pause(stream),)))  # on its way when the stream ended
    assert (alone.streams, alone.paused) == (set(), set())


async def test_a_control_of_a_stream_of_somebody_else_is_ignored(path: Path) -> None:
    async with listening(path) as hub, hub.gateway() as one, hub.gateway() as other:
        mine, theirs = one.welcome.first_stream, other.welcome.first_stream
        await one.send(Controls((Cancel(theirs),)))
        await one.send(Controls((Cancel(theirs), Cancel(mine))))

        assert await hub.hear() == Controls((Cancel(mine),))


async def test_a_question_goes_to_the_gateway_that_the_id_names(path: Path) -> None:
    async with (
        listening(path) as hub,
        hub.gateway("aaaaaaaa") as asker,
        hub.gateway("bbbbbbbb") as asked,
    ):
        request = new_request_id("bbbbbbbb")
        await asker.send(Ask(5, request, "default", "cancel"))
        question = await receive(asked, Ask)
        assert (question.request_id, question.tenant, question.topic) == (
            request,
            "default",
            "cancel",
        )
        record = Record(
            id=request, label=None, tenant="default", model="tiny", created=1, input_tokens=3
        )
        await asked.send(Answer(question.number, record))

        answer = await receive(asker, Answer)
        assert answer.number == 5
        assert attrs.asdict(answer.record) == attrs.asdict(record)


async def test_what_the_worker_is_asked_comes_back_to_who_asked(path: Path) -> None:
    async with (
        listening(path) as hub,
        hub.gateway("aaaaaaaa") as first,
        hub.gateway("bbbbbbbb") as second,
    ):
        await first.send(Ask(7, "req-1", "default", "trace"))
        await second.send(Ask(7, "req-2", "default", "trace"))
        asked = {}
        for _ in range(2):
            ask = await hub.hear()
            assert isinstance(ask, Ask) and ask.topic == "trace"
            asked[ask.request_id] = ask.number
        await hub.downstream.send(Answer(asked["req-2"], content=b"of 2"))
        await hub.downstream.send(Answer(asked["req-1"], content=b"of 1"))

        assert await receive(first, Answer) == Answer(7, content=b"of 1")
        assert await receive(second, Answer) == Answer(7, content=b"of 2")


async def test_a_question_about_a_gateway_that_is_gone_is_answered_with_nothing(path: Path) -> None:
    async with listening(path) as hub, hub.gateway("aaaaaaaa") as asker:
        async with hub.gateway("bbbbbbbb") as asked:
            await asker.send(Ask(1, new_request_id("bbbbbbbb"), "default"))
            await receive(asked, Ask)  # and dies

        assert await receive(asker, Answer) == Answer(1, None)
        await asker.send(Ask(2, new_request_id("bbbbbbbb"), "default"))
        assert await receive(asker, Answer) == Answer(2, None)
        await asker.send(Ask(3, "nonsense", "default"))
        assert await receive(asker, Answer) == Answer(3, None)


async def test_nobody_listens(path: Path) -> None:
    with pytest.raises(LinkLost):
        async with connect(path, gateway_name()):
            pass
