"""One step of a loaded model: follow the plan, run the decoder, sample, remember the tokens."""

from typing import Any

from plancha.contracts import Geometry, Site
from plancha.messages import Plan, StepDone
from plancha_engine.batch_tables import BatchTables
from plancha_engine.model import Decoder
from plancha_engine.sampler import Sampler
from plancha_engine.stopwatch import Stopwatch


class Runner:
    """A model with its KV pool, and what it knows of every batch slot."""

    def __init__(self, decoder: Decoder[Any, Any], site: Site, geometry: Geometry) -> None:
        self.geometry = geometry
        self._decoder = decoder
        self._site = site
        self._forget()

    def step(self, plan: Plan) -> StepDone:
        """Compute one plan. A row whose logits are not all finite numbers fails alone."""
        watch = Stopwatch()
        for join in plan.joins:
            self._sampler.join(join)
        self._tables.apply(plan)
        logits = self._decoder.forward(self._tables.batch(plan), watch)
        slots = plan.slots[plan.samples]
        lengths = (plan.starts + plan.counts)[plan.samples]
        tokens, failed = self._sampler.sample(logits, slots, lengths, self._tables.token_ids)
        drawn = ~failed
        self._tables.store(slots[drawn], lengths[drawn], tokens[drawn])
        watch.lap("sampling")
        return StepDone(
            plan.number,
            slots[drawn],
            tokens[drawn],
            failed=tuple(slots[failed].tolist()),
            seconds=watch.total,
            timings=watch.seconds,
        )

    def reset(self) -> None:
        """Forget every slot and make the pool anew."""
        self._decoder.backend.reset()
        self._forget()

    def _forget(self) -> None:
        site, geometry = self._site, self.geometry
        self._tables = BatchTables(site.max_sequences, geometry.context_length, site.block_size)
        self._sampler = Sampler(site.max_sequences, geometry.vocabulary)
