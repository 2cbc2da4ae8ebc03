"""What each request's row says: by arithmetic, whatever became of the request."""

from typing import Any

import anyio
import anyio.lowlevel
import attrs
import pytest

from plancha.accounting.accounts import Accounts
from plancha.accounting.journal import Journal
from plancha.calls.call import Call
from plancha.contracts import Geometry
from plancha.failure import RequestFailed, stalled
from plancha.inbox import Admitted
from plancha.ledger import Closed
from plancha.plans import Plan, StepDone
from plancha.record import Outcome
from plancha.streams.generation import Generation
from plancha.testing.client import collect, quiet
from plancha.testing.embedded import Limits, embedded
from plancha.testing.executors import ScriptExecutor
from plancha.testing.gate import GatedExecutor
from plancha.testing.ledger import MemoryLedger
from plancha_text.byte_text import byte_text

EOS = 257
GEOMETRY = Geometry(blocks=64, context_length=256, vocabulary=264, stop_ids=(EOS,))


def script(*ids: int, failing: frozenset[tuple[int, int]] = frozenset()) -> ScriptExecutor:
    return ScriptExecutor(lambda prompt: ids, GEOMETRY, failing=failing)


def call(*prompts: str, **fields: Any) -> Call:
    return Call(model=None, prompts=prompts or ("xxx",), **fields)


async def only_row(ledger: MemoryLedger) -> tuple[int, int, Outcome]:
    """Input and output tokens and the outcome of the only request, once it is closed."""
    with anyio.fail_after(30):
        while not ledger.closed:  # noqa: ASYNC110
            await anyio.sleep(0.001)
    (closed,) = ledger.closed.values()
    assert set(ledger.opened) == set(ledger.closed)
    return row(closed)


def row(closed: Closed) -> tuple[int, int, Outcome]:
    return closed.counts.input_tokens, closed.counts.output_tokens, closed.outcome


def agrees(generation: Generation, ledger: MemoryLedger) -> bool:
    """Whether what the gateway remembers is what is written, to the second."""
    record, closed = generation.record, ledger.closed[generation.record.id]
    opened, counts = ledger.opened[record.id], closed.counts
    written = (counts.input_tokens, counts.cached_tokens, counts.output_tokens, closed.outcome)
    known = (record.input_tokens, record.cached_tokens, record.output_tokens, record.outcome)
    times = record.created == int(opened.opened_s) and record.finished == int(closed.closed_s)
    about = (opened.label, opened.tenant, opened.model) == (
        record.label,
        record.tenant,
        record.model,
    )
    return written == known and times and about


async def test_a_request_that_ends_by_itself_costs_what_its_client_was_told() -> None:
    ledger = MemoryLedger()
    async with embedded(script(*b"ab", EOS), byte_text(), ledger=ledger) as kernel:
        asked = call("x" * 33, max_tokens=9, label="mine", tenant="acme")
        text, _, generation = await collect(kernel.gateway, asked)
        assert text == "ab"
        assert await only_row(ledger) == (33, 3, "completed")  # the ending eos counts
        assert agrees(generation, ledger)
        assert generation.record.label == "mine"


@pytest.mark.parametrize("read", [0, 17])
async def test_a_client_that_leaves_pays_for_what_was_computed(read: int) -> None:
    """O-58 (b), where its one token never came to it, and (c)."""
    ledger, gated = MemoryLedger(), GatedExecutor(script(65))
    async with embedded(gated, byte_text(), ledger=ledger) as kernel:
        async with await kernel.gateway.generate(call("x" * 33, max_tokens=200)) as generation:
            await gated.run(read)
            await gated.started()
            await anyio.wait_all_tasks_blocked()
        await anyio.wait_all_tasks_blocked()  # the worker knows while the step is in flight
        gated.open()
        assert await only_row(ledger) == (33, read, "cancelled")
        await quiet(kernel)
        assert agrees(generation, ledger)


async def test_who_leaves_the_queue_pays_nothing() -> None:
    """O-58 (a)."""
    ledger, gated = MemoryLedger(), GatedExecutor(script(65))
    limits = Limits(max_sequences=1)
    async with embedded(gated, byte_text(), ledger=ledger, limits=limits) as kernel:
        async with await kernel.gateway.generate(call(max_tokens=2)):
            await gated.started()
            async with await kernel.gateway.generate(call("x" * 33, max_tokens=9)) as waiting:
                await anyio.wait_all_tasks_blocked()
            with anyio.fail_after(30):
                while waiting.record.state != "done":
                    await anyio.lowlevel.checkpoint()
            assert row(ledger.closed[waiting.record.id]) == (0, 0, "cancelled")
            assert agrees(waiting, ledger)
            gated.open()


@pytest.mark.parametrize("stop", [(), ("nothing that comes",)])
async def test_who_leaves_without_reading_a_finished_answer_pays_for_all_of_it(
    stop: tuple[str, ...],
) -> None:
    """O-58 (d)."""
    ledger = MemoryLedger()
    async with embedded(script(65), byte_text(), ledger=ledger) as kernel:
        asked = call("x" * 33, max_tokens=20, stop=stop)
        async with await kernel.gateway.generate(asked) as generation:
            while generation.streams[0].finished is None:
                await anyio.lowlevel.checkpoint()
        assert await only_row(ledger) == (33, 20, "completed")
        await quiet(kernel)
        assert agrees(generation, ledger)


async def test_a_prompt_that_was_half_computed_costs_the_half() -> None:
    ledger, gated = MemoryLedger(), GatedExecutor(script(65))
    async with embedded(gated, byte_text(), ledger=ledger) as kernel:  # 64 tokens a step
        async with await kernel.gateway.generate(call("x" * 130, max_tokens=9)):
            await gated.run(1)
            await gated.started()
        await anyio.wait_all_tasks_blocked()
        gated.open()
        assert await only_row(ledger) == (128, 0, "cancelled")


@pytest.mark.parametrize(
    ("stop", "text", "tokens", "finish_reason"),
    [
        (("ef",), "abcd", 6, "stop"),  # a match, while the worker goes on or has ended
        (("nope",), "abcdefghijkl", 12, "length"),  # none
        (("klm",), "abcdefghijkl", 12, "length"),  # what is held back is no match in the end
        (("l",), "abcdefghijk", 12, "stop"),  # in the worker's last token
    ],
)
@pytest.mark.parametrize("late", [False, True])
async def test_with_stop_strings_what_the_client_was_given_is_what_is_written(
    stop: tuple[str, ...], text: str, tokens: int, finish_reason: str, late: bool
) -> None:
    ledger = MemoryLedger()
    async with embedded(script(*b"abcdefghijkl"), byte_text(), ledger=ledger) as kernel:
        asked = call("x" * 33, max_tokens=12, stop=stop)
        async with await kernel.gateway.generate(asked) as generation:
            while late and generation.streams[0].finished is None:
                await anyio.lowlevel.checkpoint()
            assert not (late and ledger.closed)  # the gateway has the last word
            deltas = [delta async for some in generation for delta in some]
        assert "".join(delta.text for delta in deltas) == text
        assert deltas[-1].finish_reason == finish_reason
        assert await only_row(ledger) == (33, tokens, "completed")
        assert agrees(generation, ledger)
        await quiet(kernel)


async def test_all_outputs_of_all_prompts_are_one_row() -> None:
    ledger = MemoryLedger()
    async with embedded(script(65), byte_text(), ledger=ledger) as kernel:
        asked = call("x" * 33, "y" * 20, max_tokens=5, n=3)
        _, reasons, generation = await collect(kernel.gateway, asked)
        assert reasons == ["length"] * 6
        assert await only_row(ledger) == (33 + 20, 2 * 3 * 5, "completed")
        assert agrees(generation, ledger)


async def test_one_output_that_fails_makes_a_failed_request_of_what_all_have_computed() -> None:
    ledger = MemoryLedger()
    failing = script(65, failing=frozenset({(1, 2)}))  # the second output, after two tokens
    async with embedded(failing, byte_text(), ledger=ledger) as kernel:
        with pytest.raises(RequestFailed):
            await collect(kernel.gateway, call("x" * 33, max_tokens=5, n=2))
        assert await only_row(ledger) == (33, 5 + 2, "failed")


async def test_a_prompt_that_another_output_has_to_compute_again_is_paid_once() -> None:
    """The first output fails in the prompt's second chunk; its heir computes all of it."""

    class FailsOnce(ScriptExecutor):
        failed = False

        def step(self, plan: Plan) -> StepDone:
            done = super().step(plan)
            if plan.number != 1:
                return done
            return attrs.evolve(done, slots=done.slots[:0], tokens=done.tokens[:0], failed=(0,))

    ledger = MemoryLedger()
    executor = FailsOnce(lambda prompt: [65], GEOMETRY)
    allocator_limits = Limits(max_sequences=1)
    async with embedded(executor, byte_text(), ledger=ledger, limits=allocator_limits) as kernel:
        with pytest.raises(RequestFailed):
            await collect(kernel.gateway, call("x" * 130, max_tokens=3, n=2))
        (closed,) = ledger.closed.values()
        assert row(closed) == (130, 3, "failed")
        assert closed.counts.cached_tokens == 0  # nobody had computed it before this request


async def test_a_step_that_raises_is_written_down_as_a_failure() -> None:
    class Raises(ScriptExecutor):
        def step(self, plan: Plan) -> StepDone:
            if plan.number == 4:
                raise RuntimeError("secret")
            return super().step(plan)

    ledger = MemoryLedger()
    executor = Raises(lambda prompt: [65], GEOMETRY)
    async with embedded(executor, byte_text(), ledger=ledger) as kernel:
        with pytest.raises(RequestFailed):
            await collect(kernel.gateway, call("x" * 33, max_tokens=50))
        assert await only_row(ledger) == (33, 4, "failed")


async def test_a_request_that_is_not_finished_in_time_costs_what_was_computed() -> None:
    ledger, gated = MemoryLedger(), GatedExecutor(script(65))
    now = [0.0]
    async with embedded(gated, byte_text(), ledger=ledger, clock=lambda: now[0]) as kernel:
        asked = call("x" * 33, max_tokens=50, timeout_s=7.0)
        async with await kernel.gateway.generate(asked) as generation:
            await gated.run(2)
            await gated.started()
            now[0] = 7.5
            gated.commit()
            with pytest.raises(RequestFailed) as failed:
                async for _ in generation:
                    pass
        assert failed.value.failure.code == "request_timeout"
        # Its third token was there when its time was found to be over.
        assert await only_row(ledger) == (33, 3, "failed")
        assert agrees(generation, ledger)
        gated.open()


async def test_a_reader_that_stalled_is_written_down_as_one() -> None:
    ledger, gated = MemoryLedger(), GatedExecutor(script(65))
    async with embedded(gated, byte_text(), ledger=ledger) as kernel:
        async with await kernel.gateway.generate(call("x" * 33, max_tokens=50)) as generation:
            await gated.run(2)
            await gated.started()
            generation.abort(stalled(30))
            await anyio.wait_all_tasks_blocked()
            gated.open()
        assert await only_row(ledger) == (33, 2, "stalled")
        await quiet(kernel)
        assert agrees(generation, ledger)


async def test_a_request_that_is_refused_has_no_row() -> None:
    ledger = MemoryLedger()
    async with embedded(script(65), byte_text(), ledger=ledger) as kernel:
        with pytest.raises(RequestFailed):
            await collect(kernel.gateway, call("x" * 250, max_tokens=50))
        await collect(kernel.gateway, call(max_tokens=1))
        assert await only_row(ledger) == (3, 1, "completed")


async def test_cached_tokens_are_some_of_the_input_tokens() -> None:
    """O-60."""
    ledger = MemoryLedger()
    async with embedded(script(65), byte_text(), ledger=ledger) as kernel:
        asked = call("x" * 160, max_tokens=5)
        for cached in (0, 144):
            _, _, generation = await collect(kernel.gateway, asked)
            counts = ledger.closed[generation.record.id].counts
            assert (counts.input_tokens, counts.cached_tokens) == (160, cached)
            assert agrees(generation, ledger)


async def test_what_runs_when_the_worker_ends_is_closed_as_failed() -> None:
    ledger, gated = MemoryLedger(), GatedExecutor(script(65))
    async with embedded(
        gated, byte_text(), ledger=ledger, limits=Limits(max_sequences=1)
    ) as kernel:
        running = await kernel.gateway.generate(call("x" * 33, max_tokens=50))
        await gated.run(5)
        await gated.started()
        waiting = await kernel.gateway.generate(call("x" * 20, max_tokens=50))
        await anyio.wait_all_tasks_blocked()
    gated.open()
    assert row(ledger.closed[running.record.id]) == (33, 5, "failed")
    assert row(ledger.closed[waiting.record.id]) == (0, 0, "failed")


def counted(journal: Journal) -> list[tuple[int, int, int]]:
    """What is gathered of running requests, and taken away as if it had been written."""
    entries = journal.begin(0.0)
    if entries is None:
        return []
    journal.written(entries)
    return [(each.input_tokens, each.cached_tokens, each.output_tokens) for each in entries.counts]


def test_what_runs_is_counted_once_a_second_and_only_if_it_has_changed(rig: Any) -> None:
    simulation, journal = rig.script(65), Journal()
    planner = simulation.planner
    accounts = Accounts(journal, planner.batch)

    def accept(prompt: int) -> None:
        stream = simulation.submit([7 + prompt] * prompt, 100)
        accounts.hear([Admitted((planner.sequences[stream],))])

    def step(now: float) -> None:
        done = simulation._executor.step(planner.plan(now))
        accounts.hear([done])
        planner.apply(done, now)
        frame = planner.report.take_frame(planner.load())
        accounts.tell(frame.joined, frame.finished)
        accounts.checkpoint(now)

    accept(130)
    assert accounts.next_s is None
    accounts.checkpoint(10.0)
    assert counted(journal) == []

    step(10.0)
    assert counted(journal) == [(64, 0, 0)]
    step(10.5)
    step(10.9)
    assert counted(journal) == []  # within the second
    assert accounts.next_s == 11.0
    accounts.checkpoint(11.0)
    assert counted(journal) == [(130, 0, 1)]
    assert accounts.next_s is None  # nothing has happened since

    accept(20)
    step(12.0)
    assert sorted(counted(journal)) == [(20, 0, 1), (130, 0, 2)]
