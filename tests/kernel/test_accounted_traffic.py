"""Any clients on any ledger: one row for each accepted request, and it says what was given."""

import random
from typing import Any

import anyio
import anyio.lowlevel
import attrs
import pytest

from plancha.calls.call import Call
from plancha.contracts import Geometry, Tenant
from plancha.failure import RequestFailed, engine_error, stalled
from plancha.gateway import Gateway
from plancha.ledger import LedgerError
from plancha.plans import Plan, StepDone
from plancha.streams.generation import Generation
from plancha.testing.client import quiet
from plancha.testing.embedded import Limits, embedded
from plancha.testing.executors import ChainExecutor
from plancha.testing.ledger import MemoryLedger
from plancha_text.byte_text import byte_text

GEOMETRY = Geometry(blocks=30, context_length=256, vocabulary=264, stop_ids=(257,))
REQUESTS = 60


@attrs.define(eq=False)
class FaultyChain(ChainExecutor):
    """Now and then a sequence fails, or a whole step."""

    chance: random.Random = attrs.field(factory=random.Random)

    def step(self, plan: Plan) -> StepDone:
        if self.chance.random() < 0.01:
            raise RuntimeError("a step")
        done = super().step(plan)
        if done.slots.size == 0 or self.chance.random() > 0.02:
            return done
        failed = int(done.slots[0])
        keep = done.slots != failed
        return attrs.evolve(
            done,
            slots=done.slots[keep],
            tokens=done.tokens[keep],
            failed=(failed,),
            logprobs=None if done.logprobs is None else done.logprobs.rows(keep),
        )


@attrs.define(eq=False)
class Uncertain(MemoryLedger):
    """Fails now and then, before or after it has written, and takes its time."""

    chance: random.Random = attrs.field(factory=random.Random)

    async def write(self, *rows: Any) -> None:
        for _ in range(self.chance.randrange(4)):
            await anyio.lowlevel.checkpoint()
        if self.chance.random() < 0.1:
            raise LedgerError("before")
        await super().write(*rows)
        if self.chance.random() < 0.1:
            raise LedgerError("after")


@attrs.define(eq=False)
class Client:
    """Asks once, behaves as it likes, and remembers what it was given."""

    gateway: Gateway
    ledger: MemoryLedger
    chance: random.Random
    generation: Generation | None = None
    tokens: int = 0
    ended: str | None = None  # the terminal event
    row_was_there: bool = False  # by then
    left: bool = False

    async def run(self) -> None:
        chance = self.chance
        call = Call(
            model=None,
            prompts=tuple(
                chr(65 + chance.randrange(3)) * chance.randint(1, 80)
                for _ in range(chance.choice((1, 1, 1, 2)))
            ),
            max_tokens=chance.randint(0, 40),
            n=chance.choice((1, 1, 1, 3)),
            stop=chance.choice(((), ("7",), ("ab", "zz"))),
            tenant=chance.choice(("a", "b")),
            timeout_s=chance.choice((None, None, 0.0, 0.05)),
        )
        for _ in range(chance.randrange(200)):
            await anyio.lowlevel.checkpoint()
        try:
            async with await self.gateway.generate(call) as self.generation:
                await chance.choice((self.reads, self.reads, self.leaves, self.breaks))()
        except RequestFailed:
            self.told("failed")

    async def reads(self) -> None:
        await self.take(10**9)
        self.told("done")

    async def leaves(self) -> None:
        await self.take(self.chance.randrange(5))
        self.left = self.generation is not None and not self.generation.ended

    async def breaks(self) -> None:
        assert self.generation is not None
        await self.take(self.chance.randrange(5))
        if self.chance.random() < 0.5:
            self.generation.cancel()
            await self.take(10**9)
        else:
            self.left = True
            self.generation.abort(self.chance.choice((stalled(1), engine_error())))

    async def take(self, most: int) -> None:
        assert self.generation is not None
        async for deltas in self.generation:
            self.tokens += sum(delta.token is not None for delta in deltas)
            if any(delta.finish_reason == "cancelled" for delta in deltas):
                self.told("cancelled")
            for _ in range(self.chance.randrange(3)):
                await anyio.lowlevel.checkpoint()
            most -= 1
            if most < 0:
                return

    def told(self, event: str) -> None:
        self.ended = event
        if self.generation is not None:
            self.row_was_there = self.generation.record.id in self.ledger.closed


@pytest.mark.parametrize("seed", range(6))
async def test_every_accepted_request_has_one_row_that_says_what_was_given(seed: int) -> None:
    chance = random.Random(seed)
    ledger = Uncertain(chance=chance)
    limits = Limits(max_sequences=4, tenants={"b": Tenant(tier=1)})
    executor = FaultyChain(GEOMETRY, chance=random.Random(seed))
    clients: list[Client] = []
    async with embedded(executor, byte_text(), ledger=ledger, limits=limits) as kernel:
        async with anyio.create_task_group() as tasks:
            for _ in range(REQUESTS):
                clients.append(Client(kernel.gateway, ledger, random.Random(chance.random())))
                tasks.start_soon(clients[-1].run)
        await quiet(kernel)
        while kernel.worker.journal.pending:  # noqa: ASYNC110
            await anyio.sleep(0.01)
    accepted = [each for each in clients if each.generation and each.generation.record.outcome]
    assert {each.generation.record.id for each in accepted if each.generation} == set(ledger.closed)
    assert set(ledger.opened) == set(ledger.closed)
    outcomes = set()
    for client in accepted:
        assert client.generation is not None
        record, closed = client.generation.record, ledger.closed[client.generation.record.id]
        counts = closed.counts
        assert (counts.input_tokens, counts.cached_tokens, counts.output_tokens) == (
            record.input_tokens,
            record.cached_tokens,
            record.output_tokens,
        )
        assert closed.outcome == record.outcome
        assert 0 <= counts.cached_tokens <= counts.input_tokens
        prompts = {id(stream.prompt): stream.prompt.size for stream in client.generation.streams}
        assert counts.input_tokens <= sum(prompts.values())
        if client.ended and not client.left:
            assert client.row_was_there
        if client.ended == "done":
            assert closed.outcome == "completed"
            assert counts.input_tokens == sum(prompts.values())
            assert counts.output_tokens == client.tokens
        else:
            assert counts.output_tokens >= client.tokens
        outcomes.add(closed.outcome)
    assert {"completed", "failed", "cancelled"} <= outcomes
