"""From the accounts into the ledger: when, in what order, and what a ledger in trouble does."""

from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from plancha.accounting import accounting
from plancha.calls.call import Call
from plancha.contracts import Geometry
from plancha.failure import RequestFailed
from plancha.kernel import Kernel
from plancha.ledger import LedgerError, LedgerLost
from plancha.links.request_id import new_request_id
from plancha.streams.generation import Generation
from plancha.streams.outbox import Delta
from plancha.testing.client import collect, quiet
from plancha.testing.embedded import embedded
from plancha.testing.executors import ScriptExecutor
from plancha.testing.gate import GatedExecutor
from plancha.testing.ledger import MemoryLedger
from plancha_text.byte_text import byte_text

HANG_S = 30.0
PATIENCE_S = 0.05


def script(*ids: int) -> ScriptExecutor:
    geometry = Geometry(blocks=64, context_length=256, vocabulary=264, stop_ids=(257,))
    return ScriptExecutor(lambda prompt: ids, geometry)


def call(prompt: str = "xxx", **fields: Any) -> Call:
    return Call(model=None, prompts=(prompt,), **fields)


async def until(holds: Callable[[], object]) -> None:
    """Wait for what is about to hold; the hang guard is no expectation."""
    with anyio.fail_after(HANG_S):
        while not holds():  # noqa: ASYNC110
            await anyio.sleep(0.001)


async def refusal(kernel: Kernel) -> tuple[str | None, int | None]:
    """Code and Retry-After of a new request's refusal."""
    with pytest.raises(RequestFailed) as refused:
        await collect(kernel.gateway, call(max_tokens=1))
    failure = refused.value.failure
    assert failure.kind == "unavailable"
    return failure.code, failure.retry_after_s


async def test_a_request_ends_when_its_row_is_durable_and_its_text_does_not_wait() -> None:
    ledger = MemoryLedger()
    async with embedded(script(*b"abc"), byte_text(), ledger=ledger) as kernel:
        ledger.hold()
        deltas: list[Delta] = []
        async with (
            await kernel.gateway.generate(call(max_tokens=3)) as generation,
            anyio.create_task_group() as tasks,
        ):

            async def client() -> None:
                async for some in generation:
                    deltas.extend(some)
                assert generation.record.id in ledger.closed

            tasks.start_soon(client)
            await until(lambda: generation.streams[0].closed)
            assert [(delta.text, delta.finish_reason) for delta in deltas] == [
                ("a", None),
                ("b", None),
                ("c", None),
                ("", "length"),
            ]
            assert kernel.planner is not None and not kernel.planner.sequences
            assert not generation.ended and generation.record.state == "generating"
            ledger.let_go()
        assert generation.ended and generation.record.state == "done"


async def test_what_gathers_while_one_write_runs_goes_into_the_next() -> None:
    ledger = MemoryLedger()
    async with embedded(script(65), byte_text(), ledger=ledger) as kernel:
        ledger.hold()
        first = await kernel.gateway.generate(call(max_tokens=1))
        await until(lambda: first.streams[0].finished is not None)
        others = [await kernel.gateway.generate(call(max_tokens=2)) for _ in range(8)]
        await until(lambda: all(each.streams[0].finished is not None for each in others))
        assert ledger.writes == []
        ledger.let_go()
        await quiet(kernel)
    opened, _, closed = map(sum, zip(*ledger.writes, strict=True))
    assert (opened, closed) == (9, 9)
    assert len(ledger.writes) == 2  # what there was at first, and all that came since
    assert ledger.writes[1][2] >= 8


TROUBLES = ("fails", "hangs")


def begin(trouble: str, ledger: MemoryLedger) -> None:
    if trouble == "hangs":
        ledger.hold()
    else:
        ledger.trouble = LedgerError("the disk is full")


def end(ledger: MemoryLedger) -> None:
    ledger.trouble = None
    ledger.let_go()


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_a_ledger_that_cannot_write_stops_newcomers_and_ends_nobody(trouble: str) -> None:
    ledger, gated = MemoryLedger(), GatedExecutor(script(65))
    async with embedded(gated, byte_text(), ledger=ledger, patience_s=PATIENCE_S) as kernel:
        ended: list[Generation] = []

        async def client() -> None:
            _, reasons, generation = await collect(kernel.gateway, call("x" * 33, max_tokens=3))
            assert reasons == ["length"]
            ended.append(generation)

        async with anyio.create_task_group() as clients:
            clients.start_soon(client)
            await gated.run(2)
            begin(trouble, ledger)
            clients.start_soon(client)
            await until(lambda: not kernel.worker.journal.writable)
            assert await refusal(kernel) == ("ledger_unavailable", 5)
            gated.open()  # both have yet to end, and are not held up
        assert len(ended) == 2 and ledger.closed == {}
        await until(lambda: kernel.gateway.load and not kernel.gateway.load.ledger_writable)
        assert kernel.worker.journal.pending >= 2

        end(ledger)
        await until(lambda: kernel.gateway.load and kernel.gateway.load.ledger_writable)
        for generation in ended:
            counts = ledger.closed[generation.record.id].counts
            assert (counts.input_tokens, counts.output_tokens) == (33, 3)
        assert kernel.worker.journal.pending == 0
        await collect(kernel.gateway, call(max_tokens=1))
        assert len(ledger.closed) == 3


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_who_waits_for_a_row_waits_no_longer_than_the_ledger_has_patience(
    trouble: str,
) -> None:
    ledger = MemoryLedger()
    async with embedded(script(65), byte_text(), ledger=ledger, patience_s=PATIENCE_S) as kernel:
        begin(trouble, ledger)
        with anyio.fail_after(HANG_S):
            _, reasons, generation = await collect(kernel.gateway, call(max_tokens=3))
        assert reasons == ["length"]
        assert ledger.closed == {}
        assert (generation.record.state, generation.record.output_tokens) == ("done", 3)
        end(ledger)
        await until(lambda: generation.record.id in ledger.closed)


async def test_a_trouble_that_passes_soon_is_noticed_by_nobody() -> None:
    ledger = MemoryLedger(trouble=LedgerError("busy"))
    async with embedded(script(65), byte_text(), ledger=ledger) as kernel:

        async def pass_soon() -> None:
            await until(lambda: kernel.worker.journal.began_s is not None)
            await anyio.wait_all_tasks_blocked()
            ledger.trouble = None

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pass_soon)
            _, _, generation = await collect(kernel.gateway, call(max_tokens=3))
        assert generation.record.id in ledger.closed
        assert kernel.worker.journal.writable


async def test_a_store_with_a_mistake_in_it_is_a_ledger_in_trouble() -> None:
    ledger = MemoryLedger(trouble=ZeroDivisionError("secret"))
    async with embedded(script(65), byte_text(), ledger=ledger, patience_s=PATIENCE_S) as kernel:
        await collect(kernel.gateway, call(max_tokens=3))
        assert await refusal(kernel) == ("ledger_unavailable", 5)
        end(ledger)
        await until(lambda: len(ledger.closed) == 1)


async def test_a_writer_whose_place_was_taken_takes_nothing_any_more() -> None:
    ledger, gated = MemoryLedger(), GatedExecutor(script(65))
    async with embedded(gated, byte_text(), ledger=ledger) as kernel:
        async with await kernel.gateway.generate(call(max_tokens=3)) as generation:
            await gated.run(1)
            await until(lambda: ledger.opened)
            ledger.trouble = LedgerLost("epoch 8 has begun")
            gated.open()
            deltas = [delta async for some in generation for delta in some]
        assert deltas[-1].finish_reason == "length"
        ledger.trouble = None  # it is never tried again
        assert await refusal(kernel) == ("ledger_unavailable", None)
        await until(lambda: kernel.gateway.load and not kernel.gateway.load.ledger_writable)
        await anyio.wait_all_tasks_blocked()
        assert ledger.closed == {}


async def test_a_worker_that_ends_writes_what_is_not_written_yet() -> None:
    """The write that hangs when it ends is given up, and all is done again."""
    ledger = MemoryLedger()
    async with embedded(script(65), byte_text(), ledger=ledger, patience_s=0.0) as kernel:
        await collect(kernel.gateway, call(max_tokens=1))
        ledger.hold()
        _, _, generation = await collect(kernel.gateway, call(max_tokens=3))
        assert generation.record.id not in ledger.closed
        ledger._gate = None  # the next write goes through, those that hang do not
    assert ledger.closed[generation.record.id].counts.output_tokens == 3
    assert ledger.closed[generation.record.id].outcome == "completed"


async def test_a_ledger_that_is_in_trouble_to_the_end_does_not_keep_a_worker_from_ending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(accounting, "LAST_WRITES_S", 0.05)
    ledger = MemoryLedger()
    async with embedded(script(65), byte_text(), ledger=ledger, patience_s=PATIENCE_S) as kernel:
        ledger.trouble = LedgerError("gone")
        await collect(kernel.gateway, call(max_tokens=1))
    assert kernel.worker.journal.pending == 2


async def test_without_a_ledger_everything_ends_as_soon() -> None:
    async with embedded(script(65), byte_text()) as kernel:
        _, _, generation = await collect(kernel.gateway, call("x" * 33, max_tokens=3))
        record = generation.record
        assert (record.input_tokens, record.output_tokens, record.outcome) == (33, 3, "completed")
        assert kernel.worker.journal.pending == 0
        with pytest.raises(RequestFailed) as failed:
            await kernel.gateway.inquiries.find(new_request_id("0" * 8), "default")
        assert failed.value.failure.code == "request_not_found"


async def test_what_a_gateway_has_forgotten_the_ledger_knows() -> None:
    ledger = MemoryLedger()
    async with embedded(script(65), byte_text(), ledger=ledger) as kernel:
        gateway = kernel.gateway
        _, _, generation = await collect(gateway, call("x" * 33, max_tokens=3, tenant="acme"))
        remembered, (request_id,) = generation.record, gateway._records
        gateway._records.clear()  # as after a restart
        found = await gateway.inquiries.find(request_id, "acme")
        for field in ("id", "label", "tenant", "model", "created", "input_tokens"):
            assert getattr(found, field) == getattr(remembered, field)
        for field in ("cached_tokens", "output_tokens", "state", "outcome", "finished"):
            assert getattr(found, field) == getattr(remembered, field)
        assert (
            await gateway.inquiries.find(request_id, "acme", cancel=True) is not None
        )  # it has ended
        assert await gateway.inquiries.find(request_id, "ops", any_tenant=True) is not None
        for unknown in (("other", request_id), ("acme", new_request_id(gateway.name))):
            with pytest.raises(RequestFailed) as failed:
                await gateway.inquiries.find(unknown[1], unknown[0])
            assert failed.value.failure.code == "request_not_found"

        ledger.trouble = LedgerError("no database")
        with pytest.raises(RequestFailed) as failed:
            await gateway.inquiries.find(request_id, "acme")
        assert (failed.value.failure.kind, failed.value.failure.code) == (
            "unavailable",
            "ledger_unavailable",
        )


async def test_only_what_can_be_a_request_is_asked_of_the_ledger() -> None:
    class Asked(MemoryLedger):
        async def find(self, request: str) -> None:
            raise AssertionError(request)

    async with embedded(script(65), byte_text(), ledger=Asked()) as kernel:
        for text in ("", "req-", "req-' OR 1=1", "x" * 10_000, new_request_id("0" * 8) + "0"):
            with pytest.raises(RequestFailed) as failed:
                await kernel.gateway.inquiries.find(text, "default")
            assert failed.value.failure.code == "request_not_found"
