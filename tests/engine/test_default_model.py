"""The default model against `transformers` on the very same weights."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from plancha.contracts import Geometry, Site
from plancha.testing.plan_writer import PlanWriter
from plancha_engine.arrays import Float32s
from plancha_engine.batch_tables import BatchTables
from plancha_engine.checkpoint import open_checkpoint
from plancha_engine.config import ModelConfig
from plancha_engine.executor import make_decoder
from plancha_engine.runner import Runner
from plancha_engine.stopwatch import Stopwatch

pytestmark = pytest.mark.model

LENGTHS = (1, 2, 9, 16, 33, 100, 257, 600)
SITE = Site(
    max_sequences=32,
    max_batched_tokens=1100,
    max_waiting=32,
    block_size=16,
    model="",
    vocabulary=49152,
)
GEOMETRY = Geometry(blocks=512, context_length=1024, vocabulary=49152, stop_ids=())


@pytest.fixture(scope="module")
def weights(model_file: Path) -> tuple[ModelConfig, dict[str, torch.Tensor]]:
    checkpoint = open_checkpoint(model_file)
    return checkpoint.config, checkpoint.load()


@pytest.fixture(scope="module")
def reference(weights: tuple[ModelConfig, dict[str, torch.Tensor]]) -> Any:
    """`transformers` with our own dequantised tensors."""
    config, parameters = weights
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                vocab_size=config.vocabulary,
                hidden_size=config.hidden,
                intermediate_size=config.intermediate,
                num_hidden_layers=config.layers,
                num_attention_heads=config.heads,
                num_key_value_heads=config.kv_heads,
                max_position_embeddings=config.context_length,
                rms_norm_eps=config.norm_epsilon,
                rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
                tie_word_embeddings=config.tied_head,
            )
        )
    model.load_state_dict(parameters, strict=False, assign=True)
    model.tie_weights()
    model.model.rotary_emb = type(model.model.rotary_emb)(config=model.config)
    model.eval()  # type: ignore[no-untyped-call]
    return model


@pytest.fixture(scope="module")
def runner(weights: tuple[ModelConfig, dict[str, torch.Tensor]]) -> Runner:
    config, parameters = weights
    return Runner(make_decoder(config, parameters.items(), "numba", SITE, GEOMETRY), SITE, GEOMETRY)


def prompt_of(length: int) -> list[int]:
    """Beginning of text, then ids at random."""
    numbers = np.random.default_rng(length)
    return [1, *numbers.integers(300, 49152, length - 1).tolist()]


@torch.no_grad()
def expected_logits(reference: Any, ids: list[int], last: int) -> Float32s:
    logits: Float32s = reference(torch.tensor([ids]), logits_to_keep=last).logits[0].numpy()
    return logits


@pytest.mark.parametrize("backend", ["torch", "numba"])
def test_logits_of_prompts_of_all_lengths(
    backend: str, weights: tuple[ModelConfig, dict[str, torch.Tensor]], reference: Any
) -> None:
    config, parameters = weights
    decoder = make_decoder(config, parameters.items(), backend, SITE, GEOMETRY)
    tables = BatchTables(SITE.max_sequences, GEOMETRY.context_length, SITE.block_size)
    writer = PlanWriter(GEOMETRY.blocks, SITE.block_size)
    for slot, length in enumerate(LENGTHS):
        writer.join(slot, prompt_of(length))
    writer.compute_all()
    plan = writer.plan()
    tables.apply(plan)
    batch, watch = tables.batch(plan), Stopwatch()
    logits = decoder.logits(decoder.forward(batch, watch), batch.sampled, watch)
    for row, length in zip(logits, LENGTHS, strict=True):
        assert np.abs(row - expected_logits(reference, prompt_of(length), 1)[0]).max() < 2e-3


def test_64_greedy_tokens_are_the_same(runner: Runner, reference: Any) -> None:
    """One pass of `transformers` over all that was generated: each token is its best next one."""
    prompts = [prompt_of(length) for length in LENGTHS]
    for prompt, output in zip(prompts, generate(runner, prompts, 64, 1024), strict=True):
        logits = expected_logits(reference, prompt + output[:-1], 64)
        assert logits.argmax(-1).tolist() == output


def test_a_batch_of_32_gives_what_each_gets_alone(runner: Runner) -> None:
    """In chunks of 24, so that some still prefill when others have ended."""
    prompts = [prompt_of(1 + 5 * slot % 90) for slot in range(32)]
    together = generate(runner, prompts, 12, 24)
    for slot in (0, 3, 17, 31):
        runner.reset()
        assert generate(runner, [prompts[slot]], 12, 1024) == [together[slot]]


def generate(runner: Runner, prompts: list[list[int]], tokens: int, chunk: int) -> list[list[int]]:
    """The prompts join one a step, and leave when they have their tokens."""
    writer = PlanWriter(GEOMETRY.blocks, SITE.block_size)
    outputs: list[list[int]] = []
    running: set[int] = set()
    while running or len(outputs) < len(prompts):
        if len(outputs) < len(prompts):
            writer.join(len(outputs), prompts[len(outputs)])
            running.add(len(outputs))
            outputs.append([])
        for slot in running:
            writer.compute(slot, chunk)
        done = runner.step(writer.plan())
        writer.take(done)
        for slot, token in zip(done.slots.tolist(), done.tokens.tolist(), strict=True):
            outputs[slot].append(token)
            if len(outputs[slot]) == tokens:
                writer.leave(slot)
                running.remove(slot)
    return outputs
