"""One step of a loaded model: follow the plan, run the decoder, sample, remember the tokens."""

from typing import Any

import attrs

from plancha.contracts import Geometry, Site
from plancha.messages import PromptLogprobs
from plancha.plans import Plan, StepDone
from plancha_engine.batch_tables import Batch, BatchTables
from plancha_engine.host_pool import HostPool
from plancha_engine.logprobs import LogprobReader
from plancha_engine.model import Decoder
from plancha_engine.sampler import Grammars, Sampler
from plancha_engine.stopwatch import Stopwatch


class Runner:
    """A model with its KV pool, and what it knows of every batch slot."""

    def __init__(
        self,
        decoder: Decoder[Any, Any],
        site: Site,
        geometry: Geometry,
        grammars: Grammars | None = None,
    ) -> None:
        self._decoder = decoder
        self._grammars = grammars
        self._site = site
        self._host = HostPool(decoder.backend.pools(), geometry.host_blocks)
        copy_s = self._host.block_copy_s(decoder.backend.pools())
        self.geometry = attrs.evolve(geometry, block_copy_s=copy_s, grammars=grammars is not None)
        self._forget()

    def step(self, plan: Plan) -> StepDone:
        """Compute one plan. A row fails alone: see `Sampler.sample`."""
        watch = Stopwatch()
        self._host.move(self._decoder.backend.pools(), plan.moves)
        watch.lap("copies")
        self._sampler.leave(plan.left)
        for join in plan.joins:
            self._sampler.join(join)
            self._logprobs.join(join)
        self._tables.apply(plan)
        batch = self._tables.batch(plan)
        states = self._decoder.forward(batch, watch)
        prompts = self._prompt_logprobs(states, batch, plan, watch)
        logits = self._decoder.logits(states, batch.sampled, watch)
        slots = plan.slots[plan.samples]
        lengths = (plan.starts + plan.counts)[plan.samples]
        copied = self._logprobs.copy(logits, slots)
        tokens, failed = self._sampler.sample(logits, slots, lengths, self._tables.token_ids)
        drawn = ~failed
        logprobs = self._logprobs.read(copied, slots, tokens)
        self._tables.store(slots[drawn], lengths[drawn], tokens[drawn])
        watch.lap("sampling")
        return StepDone(
            plan.number,
            slots[drawn],
            tokens[drawn],
            failed=tuple(slots[failed].tolist()),
            logprobs=None if logprobs is None else logprobs.rows(drawn),
            prompt_logprobs=prompts,
            seconds=watch.total,
            timings=watch.seconds,
        )

    def _prompt_logprobs(
        self, states: Any, batch: Batch, plan: Plan, watch: Stopwatch
    ) -> tuple[PromptLogprobs, ...]:
        token_ids = self._tables.token_ids
        return tuple(
            self._logprobs.read_prompt(
                self._decoder.logits(states, stretch.rows, watch), stretch, token_ids
            )
            for stretch in self._logprobs.prompt_stretches(batch, plan)
        )

    def reset(self) -> None:
        """Forget every slot and make the pool anew; what the host holds stays."""
        self._decoder.backend.reset()
        self._forget()

    def _forget(self) -> None:
        site, geometry = self._site, self.geometry
        self._tables = BatchTables(site.max_sequences, geometry.context_length, site.block_size)
        if self._grammars is not None:
            self._grammars.reset()
        self._sampler = Sampler(site.max_sequences, geometry.vocabulary, self._grammars)
        self._logprobs = LogprobReader(site.max_sequences, geometry.vocabulary)
