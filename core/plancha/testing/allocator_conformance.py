"""What every allocator must get right, shown on a pool whose content is kept beside it.

from plancha.testing.allocator_conformance import check_allocator

def test_mine_keeps_the_contract() -> None:
    check_allocator(lambda site: mine({}, site))
"""

import random
from collections import Counter
from collections.abc import Callable

import attrs
import numpy as np

from plancha.contracts import Allocator, Eviction, Geometry, Site
from plancha.messages import InferenceRequest, Int32s
from plancha.sampling import Sampling
from plancha.sequence import Sequence

BLOCK = 4
UNWRITTEN = -1


def check_allocator(
    make: Callable[[Site], Allocator], *, seeds: int = 20, plans: int = 150
) -> None:
    """Random traffic over small pools. Raises `AssertionError` naming seed and plan."""
    for seed in range(seeds):
        traffic = Traffic(make, random.Random(seed), f"seed {seed}")
        for _ in range(plans):
            traffic.plan()
        traffic.end()


class Traffic:
    """Sequences that join, grow, fork, leave and return, and what the pool really holds."""

    def __init__(
        self, make: Callable[[Site], Allocator], randomness: random.Random, name: str
    ) -> None:
        blocks, host_blocks = randomness.choice([12, 20, 40]), randomness.choice([1, 6, 30])
        geometry = Geometry(
            blocks=blocks,
            context_length=BLOCK * 10,
            vocabulary=100,
            stop_ids=(),
            host_blocks=host_blocks,
        )
        site = Site(
            max_sequences=8,
            max_batched_tokens=64,
            max_waiting=64,
            block_size=BLOCK,
            model="none",
            vocabulary=100,
            geometry=geometry,
        )
        self.allocator = make(site)
        self.running: list[Sequence] = []
        self.waiting: list[Sequence] = []
        self._random = randomness
        self._name = name
        self._plans = 0
        self._arrivals = 0
        self._device: Int32s = np.full((blocks, BLOCK), UNWRITTEN, np.int32)
        self._host: Int32s = np.full((host_blocks, BLOCK), UNWRITTEN, np.int32)
        self._prompts = [self._ids(length) for length in (3, 4, 9, 16, 17, 24)]

    def plan(self) -> None:
        """Some moves of the sequences, the copies, one step, and a look at everything."""
        self._plans += 1
        for sequence in list(self.running):
            self._grow_or_go(sequence)
        for sequence in self.running[1:]:
            if self._random.random() < 0.05:
                self._evict(sequence)
        if self._random.random() < 0.7 and len(self.running) < 8:
            self._join(self._next())
        self._copy()
        for sequence in self.running:
            self._compute(sequence)
        self._look()
        for sequence in list(self.running):
            if self._random.random() < 0.1:
                self.running.remove(sequence)
                self.allocator.release(sequence)
        for sequence in list(self.waiting):
            if self._random.random() < 0.1:
                self.waiting.remove(sequence)
                self.allocator.release(sequence)

    def end(self) -> None:
        """Everyone leaves: every block is back, and a second release of one is refused."""
        for sequence in (*self.running, *self.waiting):
            self.allocator.release(sequence)
        self._copy()
        stats = self.allocator.stats()
        assert stats.used == 0, f"{self._where}: {stats.used} blocks are used by nobody"
        assert stats.host_free == stats.host_total, f"{self._where}: host blocks are lost"
        sequence = self._new()
        assert self.allocator.grow(sequence, BLOCK), f"{self._where}: an empty pool has no block"
        again = attrs.evolve(sequence, blocks=list(sequence.blocks))
        self.allocator.release(sequence)
        self.allocator.release(sequence)  # holds nothing: nothing happens
        try:
            self.allocator.release(again)
        except RuntimeError:
            return
        raise AssertionError(f"{self._where}: blocks were released that nobody held")

    @property
    def _where(self) -> str:
        return f"{self._name}, plan {self._plans}"

    def _ids(self, length: int) -> list[int]:
        return [self._random.randrange(100) for _ in range(length)]

    def _new(self) -> Sequence:
        prompt = list(self._random.choice(self._prompts))
        if self._random.random() < 0.5:
            prompt += self._ids(self._random.randrange(1, 6))
        ids = np.full(BLOCK * 10, UNWRITTEN, np.int32)
        ids[: len(prompt)] = prompt
        tenant = self._random.choice("ab")
        request = InferenceRequest(
            id=str(self._arrivals),
            tenant=tenant,
            prompts=(ids[: len(prompt)],),
            sampling=Sampling(),
            max_tokens=None,
            namespace=tenant.encode(),
        )
        self._arrivals += 1
        return Sequence(
            request=request,
            stream=self._arrivals,
            arrival=self._arrivals,
            arrived_s=0.0,
            prompt_tokens=len(prompt),
            token_ids=ids,
            length=len(prompt),
            max_length=BLOCK * 10,
            stop_ids=(),
            seed=0,
        )

    def _next(self) -> Sequence:
        if self.waiting and self._random.random() < 0.6:
            return self.waiting.pop(self._random.randrange(len(self.waiting)))
        return self._new()

    def _grow_or_go(self, sequence: Sequence) -> None:
        if sequence.length >= sequence.max_length:
            self.running.remove(sequence)
            self.allocator.release(sequence)
            return
        sequence.token_ids[sequence.length] = self._random.randrange(100)
        sequence.length += 1
        if not self._grow(sequence):
            self._evict(sequence)

    def _grow(self, sequence: Sequence) -> bool:
        """All or nothing, as `need` and `stats` said before."""
        need = self.allocator.need(sequence.length, sequence)
        available = self.allocator.stats().available
        before = list(sequence.blocks)
        grew = self.allocator.grow(sequence, sequence.length)
        assert grew is (need <= available), f"{self._where}: needs {need} of {available}: {grew}"
        if not grew:
            assert sequence.blocks == before, f"{self._where}: refused, and yet changed"
        return grew

    def _evict(self, sequence: Sequence) -> None:
        expected = self.allocator.freeable([sequence])
        before = self.allocator.stats().available
        eviction = self.allocator.evict(
            sequence, computed=sequence.computed, swap=self._random.random() < 0.5
        )
        freed = self.allocator.stats().available - before
        assert freed == expected, f"{self._where}: freeable said {expected}, it was {freed}"
        if eviction is Eviction.RECOMPUTE:
            sequence.computed = 0
        self.running.remove(sequence)
        self.waiting.append(sequence)

    def _join(self, sequence: Sequence) -> None:
        parents = [each for each in self.running if each.computed >= each.prompt_tokens]
        if not sequence.host_blocks and parents and self._random.random() < 0.3:
            sequence = self._fork(self._random.choice(parents)) or sequence
        if sequence.blocks:
            pass
        elif sequence.host_blocks:
            if not self.allocator.restore(sequence):
                self.waiting.append(sequence)
                return
        else:
            self._reuse(sequence)
        if self._grow(sequence):
            self.running.append(sequence)
        else:
            self.allocator.release(sequence)
            sequence.computed = 0

    def _fork(self, parent: Sequence) -> Sequence | None:
        child = self._new()
        child.request, child.prompt_tokens = parent.request, parent.prompt_tokens
        child.token_ids[: parent.prompt_tokens] = parent.token_ids[: parent.prompt_tokens]
        child.length = parent.prompt_tokens
        if not self.allocator.fork(parent, child):
            return None
        child.computed = parent.prompt_tokens - 1
        return child

    def _reuse(self, sequence: Sequence) -> None:
        found = self.allocator.reuse(sequence)
        assert found < sequence.length, f"{self._where}: the whole prompt was found"
        assert found % BLOCK == 0 and found <= len(sequence.blocks) * BLOCK, self._where
        sequence.computed = found

    def _copy(self) -> None:
        moves = self.allocator.take_moves()
        self._host[moves.out_hosts] = self._device[moves.out_blocks]
        self._device[moves.copied_to] = self._device[moves.copied_from]
        self._device[moves.in_blocks] = self._host[moves.in_hosts]

    def _compute(self, sequence: Sequence) -> None:
        """Write what is not computed, into blocks that nobody else holds; then offer it."""
        holders = Counter(block for each in self.running for block in each.blocks)
        for position in range(sequence.computed, sequence.length):
            block = sequence.blocks[position // BLOCK]
            assert holders[block] == 1, f"{self._where}: block {block} is written and shared"
            self._device[block, position % BLOCK] = sequence.token_ids[position]
        sequence.computed = sequence.length
        self.allocator.commit(sequence, sequence.computed)

    def _look(self) -> None:
        """Books balance, and every running sequence finds its own tokens through its table."""
        stats = self.allocator.stats()
        held = {block for each in self.running for block in each.blocks}
        assert stats.used == len(held), f"{self._where}: {stats.used} used, {len(held)} held"
        assert stats.free + stats.used + stats.cached == stats.total, f"{self._where}: blocks lost"
        self._look_at_cached(held)
        for sequence in self.running:
            content = self._device[sequence.blocks].reshape(-1)[: sequence.length]
            known = sequence.token_ids[: sequence.length]
            assert (content == known).all(), f"{self._where}: stream {sequence.stream} reads others"
            assert not sequence.host_blocks, f"{self._where}: who runs holds host blocks"
        for sequence in self.waiting:
            assert not sequence.blocks, f"{self._where}: who waits holds blocks"

    def _look_at_cached(self, held: set[int]) -> None:
        """Who says which blocks are cached names as many as it counts, and none that is held."""
        find_cached = getattr(self.allocator, "cached_blocks", None)
        if find_cached is None:
            return
        found = list(find_cached())
        cached = set(found)
        assert len(found) == len(cached), f"{self._where}: a block is cached twice"
        assert len(cached) == self.allocator.stats().cached, f"{self._where}: {cached} are cached"
        assert not cached & held, f"{self._where}: {cached & held} are cached, and held"
