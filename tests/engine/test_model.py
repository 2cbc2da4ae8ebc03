"""The decoder against `transformers`, on tiny random models of every architecture."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plancha.contracts import Geometry, Site
from plancha.testing.plan_writer import PlanWriter
from plancha_engine.arrays import Float32s
from plancha_engine.batch_tables import Batch, BatchTables
from plancha_engine.checkpoint import open_checkpoint
from plancha_engine.executor import make_decoder
from plancha_engine.model import Decoder
from plancha_engine.stopwatch import Stopwatch

SITE = Site(
    max_sequences=8,
    max_batched_tokens=320,
    max_waiting=8,
    block_size=16,
    model="",
    vocabulary=96,
)
GEOMETRY = Geometry(blocks=128, context_length=512, vocabulary=96, stop_ids=())
LENGTHS = (1, 2, 15, 16, 17, 40, 64, 130)

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama, tied head": ("llama", {"tie_word_embeddings": True}),
    "llama, one KV head a head": ("llama", {"num_key_value_heads": 4}),
    "llama, one KV head for all": ("llama", {"num_key_value_heads": 1}),
    "llama, odd widths": (
        "llama",
        {"hidden_size": 72, "intermediate_size": 100, "head_dim": 24, "vocab_size": 101},
    ),
    "llama, linear scaling": ("llama", {"rope_parameters": LINEAR}),
    "llama, llama3 scaling": ("llama", {"rope_parameters": LLAMA3}),
    "mistral": ("mistral", {}),
    "qwen2, biases": ("qwen2", {}),
    "qwen3, head norms": ("qwen3", {}),
}


class Harness:
    """A decoder with tables and a plan writer: logits of whatever rows the writer is told."""

    def __init__(self, path: Path, backend: str) -> None:
        checkpoint = open_checkpoint(path)
        self.decoder = make_decoder(
            checkpoint.config, checkpoint.tensors(), backend, SITE, GEOMETRY
        )
        self.tables = BatchTables(SITE.max_sequences, GEOMETRY.context_length, SITE.block_size)
        self.writer = PlanWriter(GEOMETRY.blocks, SITE.block_size)

    def logits(self) -> Float32s:
        """One row for each that reaches its sequence's end."""
        plan = self.writer.plan()
        self.tables.apply(plan)
        rows = logits_of(self.decoder, self.tables.batch(plan))
        return rows[:, : GEOMETRY.vocabulary].copy()


def logits_of(decoder: Decoder[Any, Any], batch: Batch) -> Float32s:
    watch = Stopwatch()
    return decoder.logits(decoder.forward(batch, watch), batch.sampled, watch)


def prompts() -> list[list[int]]:
    numbers = np.random.default_rng(7)
    return [numbers.integers(0, 96, length).tolist() for length in LENGTHS]


@torch.no_grad()
def reference(model: Any, prompt: list[int]) -> Float32s:
    logits: Float32s = model(torch.tensor([prompt])).logits[0, -1, : GEOMETRY.vocabulary].numpy()
    return logits


@pytest.fixture(params=["torch", "numba"])
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_transformers(
    name: str, backend: str, make_model: Callable[..., Any], tmp_path: Path
) -> None:
    architecture, config = MODELS[name]
    model = make_model(architecture, **config)
    model.save_pretrained(tmp_path)
    harness = Harness(tmp_path, backend)
    for slot, prompt in enumerate(prompts()):
        harness.writer.join(slot, prompt)
    harness.writer.compute_all()
    for row, prompt in zip(harness.logits(), prompts(), strict=True):
        np.testing.assert_allclose(row, reference(model, prompt), atol=2e-5)


@pytest.mark.parametrize("chunk", [1, 7, 16, 33])
def test_a_prompt_may_come_in_chunks_of_any_size(
    chunk: int, backend: str, make_model: Callable[..., Any], tmp_path: Path
) -> None:
    model = make_model("llama")
    model.save_pretrained(tmp_path)
    harness = Harness(tmp_path, backend)
    prompt = prompts()[-1]
    harness.writer.join(3, prompt)
    for _ in range(0, len(prompt) - chunk, chunk):
        harness.writer.compute(3, chunk)
        assert harness.logits().size == 0  # nothing is sampled before the prompt's end
    harness.writer.compute(3)
    np.testing.assert_allclose(harness.logits()[0], reference(model, prompt), atol=2e-5)


def test_the_numba_backend_is_bitwise_the_same_in_any_batch(
    make_model: Callable[..., Any], tmp_path: Path
) -> None:
    make_model("qwen3").save_pretrained(tmp_path)
    harness = Harness(tmp_path, "numba")
    for slot, prompt in enumerate(prompts()):
        harness.writer.join(slot, prompt)
    harness.writer.compute_all()
    together = harness.logits()
    for slot, prompt in enumerate(prompts()):
        for chunk in (len(prompt), 5):
            harness.writer.leave(slot)
            harness.writer.join(slot, prompt)
            for _ in range(0, len(prompt), chunk):
                harness.writer.compute(slot, chunk)
                logits = harness.logits()
            np.testing.assert_array_equal(logits[0], together[slot])


def test_neighbours_that_come_and_go_change_nothing(
    backend: str, make_model: Callable[..., Any], tmp_path: Path
) -> None:
    model = make_model("qwen3")
    model.save_pretrained(tmp_path)
    harness = Harness(tmp_path, backend)
    writer, text = harness.writer, prompts()[-1][:40]
    writer.join(0, text[:20])
    for step in range(20):
        writer.compute(0)
        if step % 3 == 0:  # a neighbour prefills beside it and leaves its blocks behind
            writer.join(1 + step % 2, prompts()[4 + step % 4])
            writer.compute(1 + step % 2)
        logits = harness.logits()
        np.testing.assert_allclose(logits[0], reference(model, text[: 20 + step]), atol=2e-5)
        if step % 3 == 0:
            writer.leave(1 + step % 2)
        writer.token_ids(0).append(text[20 + step])
        harness.tables.token_ids[0, 20 + step] = text[20 + step]


def test_ids_beyond_the_usable_vocabulary_have_no_logits(
    backend: str, make_model: Callable[..., Any], tmp_path: Path
) -> None:
    make_model("llama", vocab_size=120).save_pretrained(tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    decoder = make_decoder(checkpoint.config, checkpoint.tensors(), backend, SITE, GEOMETRY)
    tables, writer = BatchTables(8, 512, 16), PlanWriter(128, 16)
    writer.join(0, [1, 2, 3])
    writer.compute(0)
    plan = writer.plan()
    tables.apply(plan)
    columns = logits_of(decoder, tables.batch(plan)).shape[1]
    assert 96 <= columns < 96 + 16  # at most filled up to a panel
