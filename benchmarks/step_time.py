"""Where the time of a step goes: decodes at several batch sizes, then prompts of several lengths.

    python benchmarks/step_time.py [--model NAME] [--context 200] [--threads 0] [--attention numba]

Medians; other processes on the same cores show at once, so look at the best as well.
"""

from statistics import median
from typing import Literal

import numpy as np
from cyclopts import App
from rich.console import Console
from rich.table import Table

from plancha.contracts import Site
from plancha.plans import StepDone
from plancha.sampling import Sampling
from plancha.testing.plan_writer import GREEDY, PlanWriter
from plancha_engine.checkpoint import open_checkpoint
from plancha_engine.config import ModelConfig
from plancha_engine.executor import TorchExecutor, torch_executor
from plancha_engine.model_name import resolve
from plancha_engine.report import ConsoleReport

BATCHES = (1, 8, 32, 64)
PROMPTS = (128, 256, 512)
PARTS = ("products", "attention", "sampling", "other")
SAMPLED = Sampling(temperature=0.8, top_p=0.95, top_k=50)
BLOCK_SIZE = 16

app = App(help=__doc__)
console = Console()


@app.default
def step_time(
    model: str = "smollm2",
    *,
    context: int = 200,
    steps: int = 20,
    threads: int = 0,
    attention: Literal["numba", "torch"] = "numba",
) -> None:
    """Load `model` and print two tables."""
    path = resolve(model, ConsoleReport(console))
    config = open_checkpoint(path).config
    site = Site(
        max_sequences=max(BATCHES),
        max_batched_tokens=max(PROMPTS),
        max_waiting=0,
        block_size=BLOCK_SIZE,
        model=str(path),
        vocabulary=config.vocabulary,
    )
    table = {"kv_memory": "4GiB", "threads": threads, "attention": attention}
    executor = torch_executor(table, site)
    blocks = executor.load(console.print).blocks
    decodes(executor, config, blocks, context, steps)
    prefills(executor, config, blocks)


def decodes(
    executor: TorchExecutor, config: ModelConfig, blocks: int, context: int, steps: int
) -> None:
    """Steps in which every sequence gets one token."""
    table = _table(f"Decode, {context} tokens of context", "sequences", "weights read")
    for sequences in BATCHES:
        for sampling in (GREEDY, SAMPLED):
            executor.reset()
            writer = PlanWriter(blocks, BLOCK_SIZE)
            for slot in range(sequences):
                writer.join(slot, _ids(config, context), sampling=sampling, seed=slot)
                writer.compute(slot)
                writer.take(executor.step(writer.plan()))
            done = []
            for _ in range(steps):
                writer.compute_all()
                done.append(executor.step(writer.plan()))
                writer.take(done[-1])
            label = f"{sequences}{'' if sampling is GREEDY else ' sampled'}"
            rate = 4 * _weights(config, head=True) / _median(done, "products") / 1e9
            _add(table, label, done, sequences, f"{rate:.1f} GB/s")
    console.print(table)


def prefills(executor: TorchExecutor, config: ModelConfig, blocks: int) -> None:
    """Steps that compute one prompt whole, into blocks that have been used before."""
    table = _table("Prefill of one prompt", "tokens", "products")
    executor.reset()
    writer = PlanWriter(blocks, BLOCK_SIZE)
    for tokens in PROMPTS:
        done = []
        for _ in range(6):
            writer.join(0, _ids(config, tokens))
            writer.compute(0)
            done.append(executor.step(writer.plan()))
            writer.leave(0)
        rate = 2 * tokens * _weights(config, head=False) / _median(done[1:], "products") / 1e9
        _add(table, str(tokens), done[1:], tokens, f"{rate:.0f} GFLOP/s")
    console.print(table)


def _weights(config: ModelConfig, head: bool) -> int:
    """Numbers in the matrices that every token goes through."""
    attention = 2 * (config.heads + config.kv_heads) * config.head_dim * config.hidden
    layers = config.layers * (attention + 3 * config.intermediate * config.hidden)
    return layers + (config.vocabulary * config.hidden if head else 0)


def _ids(config: ModelConfig, count: int) -> list[int]:
    ids: list[int] = np.random.default_rng(count).integers(0, config.vocabulary, count).tolist()
    return ids


def _table(title: str, first: str, rate: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in (first, "ms", "best", "tokens/s", *PARTS, rate):
        table.add_column(column, justify="right")
    return table


def _median(done: list[StepDone], part: str) -> float:
    return median(step.timings[part] for step in done)


def _add(table: Table, label: str, done: list[StepDone], tokens: int, rate: str) -> None:
    seconds = median(step.seconds for step in done)
    best = min(step.seconds for step in done)
    parts = (_median(done, part) for part in PARTS)
    table.add_row(
        label,
        f"{seconds * 1e3:.1f}",
        f"{best * 1e3:.1f}",
        f"{tokens / seconds:.0f}",
        *(f"{part * 1e3:.1f} ({part / seconds:.0%})" for part in parts),
        rate,
    )


if __name__ == "__main__":
    app()
