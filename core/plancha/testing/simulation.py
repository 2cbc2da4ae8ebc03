"""A worker without an event loop: admission, planner and executor, one step at a time."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from plancha.admission import Admission
from plancha.contracts import Allocator, Executor, Scheduler, Site
from plancha.failure import Failure, RequestFailed
from plancha.messages import Finished, InferenceRequest, Submit
from plancha.planning.planner import Planner
from plancha.plans import Plan, StepDone
from plancha.sampling import Sampling
from plancha.scheduling import take_in
from plancha.testing.clock import FakeClock


class Simulation:
    """Submit, step, look. After every step the pool's books are checked.

    `outputs` are the tokens each stream was sent, `finished` how it ended, `cached` how much of its
    prompt was found, `plans` every step.
    """

    def __init__(
        self,
        executor: Executor,
        site: Site,
        scheduler: Callable[[Site], Scheduler],
        allocator: Callable[[Site], Allocator],
        *,
        step_s: float = 0.02,
    ) -> None:
        site = attrs.evolve(site, geometry=executor.load(lambda stage: None))
        self.clock = FakeClock()
        self.allocator = allocator(site)
        self.planner = Planner(site, scheduler(site), self.allocator)
        self.outputs: dict[int, list[int]] = {}
        self.finished: dict[int, Finished] = {}
        self.cached: dict[int, int] = {}
        self.plans: list[Plan] = []
        self._executor = executor
        self._step_s = step_s
        self._most_tokens = site.max_batched_tokens
        self._admission = Admission(
            site=site,
            allocator=self.allocator,
            overload=self.planner.overload,
            meters=self.planner.meters,
        )

    def submit(
        self,
        prompt: Sequence[int],
        max_tokens: int | None = None,
        *,
        sampling: Sampling | None = None,
        tenant: str = "default",
        n: int = 1,
        more_prompts: Sequence[Sequence[int]] = (),
        **fields: Any,
    ) -> int:
        """The first stream of an accepted request; with `n` or more prompts the next follow it.

        `fields` are those of `InferenceRequest`. Raises `RequestFailed` as admission says.
        """
        stream = len(self.outputs)
        request = InferenceRequest(
            id=f"req-{stream}",
            tenant=tenant,
            prompts=tuple(np.array(each, np.int32) for each in (prompt, *more_prompts)),
            sampling=sampling or Sampling(),
            max_tokens=max_tokens,
            n=n,
            **{"namespace": tenant.encode(), **fields},
        )
        streams = tuple(range(stream, stream + n * len(request.prompts)))
        admitted = self._admission.admit(Submit(request, streams), self.clock())
        if isinstance(admitted, Failure):
            raise RequestFailed(admitted)
        for each in streams:
            self.outputs[each] = []
        take_in(self.planner, [admitted], self.clock())
        self.take_frame()
        return stream

    def cancel(self, stream: int) -> None:
        """The client is gone."""
        self.planner.cancel(stream, self.clock())
        self.take_frame()

    def pause(self, stream: int) -> None:
        """The reader lags."""
        self.planner.pause(stream)

    def resume(self, stream: int) -> None:
        """The reader is back."""
        self.planner.resume(stream, self.clock())

    def start(self) -> Plan | None:
        """End who waited for too long, plan a step and leave it in flight."""
        self.planner.expire(self.clock())
        self.take_frame()
        plan = self.planner.plan(self.clock())
        if plan is not None:
            computed, most = int(plan.counts.sum()), self._most_tokens
            assert computed <= most, f"plan {plan.number} computes {computed} tokens of {most}"
            self.plans.append(plan)
        return plan

    def commit(self, plan: Plan) -> StepDone:
        """Compute the step in flight and apply it."""
        self.clock.advance(self._step_s)
        done = self._executor.step(plan)
        self.planner.apply(done, self.clock())
        self.take_frame()
        return done

    def step(self) -> bool:
        """One whole step; False when nobody can run."""
        plan = self.start()
        if plan is not None:
            self.commit(plan)
        self.check_books()
        return plan is not None

    def run(self, most: int = 100_000) -> None:
        """Step until nobody can run. Raises `AssertionError` if someone is left then."""
        for _ in range(most):
            if not self.step():
                break
        left = sorted(self.planner.sequences)
        assert not left, f"streams {left} neither run nor end"

    def take_frame(self) -> None:
        """Bring what the planner reports to `outputs` and `finished`."""
        frame = self.planner.report.take_frame(self.planner.load())
        if frame is None:
            return
        for stream, token in zip(frame.streams.tolist(), frame.tokens.tolist(), strict=True):
            assert stream not in self.finished, f"stream {stream} got a token after its end"
            self.outputs[stream].append(token)
        for joined in frame.joined:
            assert joined.stream not in self.cached, f"stream {joined.stream} joined twice"
            self.cached[joined.stream] = joined.cached_tokens
        for finished in frame.finished:
            assert finished.stream not in self.finished, f"stream {finished.stream} ended twice"
            self.finished[finished.stream] = finished

    def check_books(self) -> None:
        """Free, held and cached blocks make the pool; who waits and was not set aside has none."""
        stats = self.allocator.stats()
        aside = self.planner.room.aside
        holders = [*self.planner.batch.running(), *aside.values()]
        held = {block for sequence in holders for block in sequence.blocks}
        where = f"after step {len(self.plans)}"
        assert stats.used == len(held), f"{where}: {stats.used} used, {len(held)} held"
        assert stats.free + stats.used + stats.cached == stats.total, f"{where}: blocks are lost"
        hosted = 0
        for sequence in self.planner.sequences.values():
            waits = sequence.slot is None
            if waits and sequence.stream not in aside:
                assert not sequence.blocks, f"{where}: a waiting sequence holds blocks"
            assert waits or not sequence.host_blocks, f"{where}: who runs holds host blocks"
            hosted += len(sequence.host_blocks)
        lent = stats.host_total - stats.host_free
        assert hosted <= lent, f"{where}: {hosted} host blocks held, {lent} lent"
