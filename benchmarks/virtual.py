"""Virtual time: an executor that computes nothing, and the lengths of a production trace.

The trace is the Azure LLM inference trace 2023, conversation (Patel et al., Splitwise, ISCA 2024;
CC-BY 4.0); see `traces/README.md`.
"""

import csv
from pathlib import Path

import attrs
import numpy as np

from plancha.contracts import Geometry
from plancha.plans import Plan, StepDone
from plancha.testing.clock import FakeClock

TRACE = Path(__file__).parent / "traces" / "azure_2023_conv.csv"
BLOCK = 16

Lengths = list[tuple[int, int]]
"""Prompt and output tokens of each request."""


@attrs.frozen
class Cost:
    """A step takes `step_s` + `new_token_s` · new tokens + `attended_token_s` · attended tokens."""

    step_s: float
    new_token_s: float
    attended_token_s: float


LAPTOP = Cost(0.030, 0.0015, 1.5e-7)
"""Of the size of a 135M model on two CPU cores."""

DATA_CENTRE = Cost(0.008, 40e-6, 50e-9)
"""Of the size of an 8B model on one data-centre GPU."""


@attrs.define(eq=False)
class Virtual:
    """Draws id 65 for whoever samples, and turns the clock by what the step would have taken."""

    geometry: Geometry
    cost: Cost
    clock: FakeClock = attrs.field(factory=FakeClock)

    def load(self, progress: object) -> Geometry:
        return self.geometry

    def step(self, plan: Plan) -> StepDone:
        slots, cost = plan.slots[plan.samples], self.cost
        attended = float((plan.counts * (plan.starts + (plan.counts + 1) / 2)).sum())
        seconds = cost.step_s + cost.new_token_s * int(plan.counts.sum())
        seconds += cost.attended_token_s * attended
        moved = plan.moves.out_blocks.size + plan.moves.in_blocks.size
        seconds += self.geometry.block_copy_s * moved
        self.clock.advance(seconds)
        return StepDone(plan.number, slots, np.full(slots.size, 65, np.int32), seconds=seconds)

    def reset(self) -> None: ...

    def close(self) -> None: ...


def trace_lengths(context: int) -> tuple[Lengths, int]:
    """The trace's requests that fit the context, and how many do not."""
    with TRACE.open() as rows:
        pairs = [
            (int(row["ContextTokens"]), max(1, int(row["GeneratedTokens"])))
            for row in csv.DictReader(rows)
        ]
    lengths = [pair for pair in pairs if sum(pair) <= context]
    return lengths, len(pairs) - len(lengths)
