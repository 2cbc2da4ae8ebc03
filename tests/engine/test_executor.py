"""The executor end to end on a tiny random model: options, steps, failures, batching."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
import torch

from plancha.contracts import Geometry, LoadError, Site
from plancha.messages import Logprobs, PromptLogprobs
from plancha.options import OptionsError
from plancha.plugins import find
from plancha.sampling import Sampling
from plancha.startup import Stage
from plancha.testing.plan_writer import GREEDY, PlanWriter
from plancha.testing.simulation import Simulation
from plancha_engine.checkpoint import open_checkpoint
from plancha_engine.config import ModelConfig
from plancha_engine.executor import TorchExecutor, TorchOptions, make_runner, torch_executor
from plancha_engine.kv_pool import blocks_in
from plancha_engine.logprobs import PROMPT_ROWS
from plancha_engine.runner import Runner

SAMPLED = Sampling(temperature=0.9, top_p=0.95)
BLOCKS = 64


@pytest.fixture
def model(make_model: Callable[..., Any], tmp_path: Path) -> Path:
    """Its logits are spread out, so that no two are ever nearly equal."""
    tiny = make_model("llama")
    with torch.no_grad():
        tiny.lm_head.weight.mul_(40)
    tiny.save_pretrained(tmp_path)
    return tmp_path


def site_of(model: Path, **changes: Any) -> Site:
    site = Site(
        max_sequences=8,
        max_batched_tokens=256,
        max_waiting=64,
        block_size=16,
        model=str(model),
        vocabulary=96,
    )
    return attrs.evolve(site, **changes)


def options(**table: Any) -> dict[str, Any]:
    """One block of the tiny model is 2 x 2 layers x 2 heads x 16 x 32 x 4 bytes = 16 KiB."""
    return {"kv_memory": 16384 * BLOCKS, "threads": 1} | table


def load(model: Path, **table: Any) -> tuple[TorchExecutor, Geometry]:
    executor = torch_executor(options(**table), site_of(model))
    return executor, executor.load(lambda stage: None)


def generate(
    runner: TorchExecutor | Runner, prompts: dict[int, list[int]], tokens: int, **join: Any
) -> dict[int, list[int]]:
    """All prompts at once, each in its slot; the ids each of them got."""
    writer = PlanWriter(BLOCKS, 16)
    for slot, prompt in prompts.items():
        writer.join(slot, prompt, **join)
    for _ in range(tokens):
        writer.compute_all()
        writer.take(runner.step(writer.plan()))
    return {slot: writer.token_ids(slot)[len(prompt) :] for slot, prompt in prompts.items()}


def prompts_of(*lengths: int) -> dict[int, list[int]]:
    numbers = np.random.default_rng(1)
    return {slot: numbers.integers(0, 96, n).tolist() for slot, n in enumerate(lengths)}


def simulation(model: Path, blocks: int) -> Simulation:
    return Simulation(
        torch_executor(options(kv_memory=16384 * blocks), site_of(model, max_batched_tokens=64)),
        site_of(model, max_batched_tokens=64),
        lambda site: find("plancha.schedulers", "fcfs")({}, site),
        lambda site: find("plancha.allocators", "paged")({}, site),
    )


def test_the_geometry_is_what_model_memory_and_options_allow(model: Path) -> None:
    _, whole = load(model)
    assert whole == Geometry(blocks=BLOCKS, context_length=512, vocabulary=96, stop_ids=(7,))
    _, shorter = load(model, context_length=100)
    assert shorter.context_length == 100
    executor = torch_executor(options(), site_of(model, vocabulary=90))
    assert executor.load(lambda stage: None).vocabulary == 90


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ({"device": "cuda"}, "executor.device"),
        ({"dtype": "float16"}, "executor.dtype"),
        ({"attention": "flash"}, "executor.attention"),
        ({"threads": -1}, "executor.threads"),
        ({"kv_memory": "lots"}, "executor.kv_memory"),
        ({"context_length": 0}, "executor.context_length"),
        ({"kv_memry": "1GiB"}, "executor.kv_memry"),
    ],
)
def test_an_option_that_cannot_be_met_is_named(table: dict[str, Any], named: str) -> None:
    with pytest.raises(OptionsError, match=named):
        torch_executor(table, site_of(Path("unused")))


def test_more_threads_than_cores_are_refused(model: Path) -> None:
    with pytest.raises(LoadError, match="threads is 4096, but this process may use"):
        load(model, threads=4096)


def test_a_head_no_kernel_is_made_for_is_refused(
    make_model: Callable[..., Any], tmp_path: Path
) -> None:
    make_model("llama", head_dim=20).save_pretrained(tmp_path)
    with pytest.raises(LoadError, match='this model has 20: use attention = "torch"'):
        load(tmp_path)
    load(tmp_path, attention="torch")


@pytest.mark.parametrize(
    ("memory", "dtype", "blocks"),
    [(65536, torch.bfloat16, 8), (65536, torch.float32, 4), (8192, torch.bfloat16, 1)],
)
def test_blocks_are_what_memory_holds(memory: int, dtype: torch.dtype, blocks: int) -> None:
    assert blocks_in(memory, four_layers(), 16, dtype) == blocks


def test_no_block_at_all_is_an_error_with_the_numbers() -> None:
    with pytest.raises(LoadError, match=r"8191 bytes holds 0 blocks: .* 4 layers .* = 8192 bytes"):
        blocks_in(8191, four_layers(), 16, torch.bfloat16)


def four_layers() -> ModelConfig:
    return ModelConfig(
        architecture="llama",
        layers=4,
        hidden=128,
        heads=8,
        kv_heads=2,
        head_dim=16,
        intermediate=256,
        vocabulary=96,
        context_length=512,
        norm_epsilon=1e-5,
        rope_theta=1e4,
    )


def test_loading_says_what_it_does(model: Path) -> None:
    said: list[str | Stage] = []
    torch_executor(options(), site_of(model)).load(said.append)
    stages = [stage for stage in said if isinstance(stage, Stage)]
    assert list(dict.fromkeys(stage.phase for stage in stages)) == [
        "compiling kernels",
        "loading weights",
    ]
    percents = [stage.percent or 0 for stage in stages if stage.phase == "loading weights"]
    assert percents == sorted(set(percents))
    assert (percents[0], percents[-1]) == (0, 100)


def test_the_parts_of_a_step_add_up(model: Path) -> None:
    executor, _ = load(model)
    writer = PlanWriter(BLOCKS, 16)
    writer.join(0, [1, 2, 3])
    writer.compute(0)
    done = executor.step(writer.plan())
    assert set(done.timings) == {"copies", "products", "attention", "sampling", "other"}
    assert sum(done.timings.values()) == pytest.approx(done.seconds)


def test_a_sequence_gets_the_same_alone_and_beside_others(model: Path) -> None:
    executor, _ = load(model)
    prompts = prompts_of(1, 15, 16, 17, 40, 3, 2, 33)
    for sampling in (GREEDY, SAMPLED):
        together = generate(executor, prompts, 24, sampling=sampling, seed=5)
        for slot in prompts:
            executor.reset()
            alone = generate(executor, {slot: prompts[slot]}, 24, sampling=sampling, seed=5)
            assert alone[slot] == together[slot]
        executor.reset()


@pytest.mark.parametrize("length", [1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 255])
def test_lengths_around_every_boundary_in_chunks_of_any_size(model: Path, length: int) -> None:
    executor, _ = load(model)
    prompt, firsts = prompts_of(length)[0], []
    for chunk in (16, 64, 256):
        writer, steps = PlanWriter(BLOCKS, 16), 0
        writer.join(0, prompt)
        while len(writer.token_ids(0)) == length:
            writer.compute(0, chunk)
            writer.take(executor.step(writer.plan()))
            steps += 1
        assert steps == -(-length // chunk)
        firsts.append(writer.token_ids(0)[-1])
        executor.reset()
    assert len(set(firsts)) == 1


@pytest.mark.parametrize(
    "sampling",
    [
        GREEDY,
        SAMPLED,
        Sampling(frequency_penalty=1.5, presence_penalty=0.5),
        Sampling(temperature=0, repetition_penalty=1.3),
    ],
    ids=str,
)
def test_a_replay_goes_on_as_if_nothing_had_happened(model: Path, sampling: Sampling) -> None:
    executor, _ = load(model)
    prompt = [5, 5, 5, 5]
    undisturbed = generate(executor, {0: prompt}, 60, sampling=sampling, seed=1)[0]
    executor.reset()
    writer = PlanWriter(BLOCKS, 16)
    writer.join(0, prompt, sampling=sampling, seed=1)
    for step in range(60):
        if step == 30:  # preempted: it returns to another slot, its tokens so far to be computed
            ids = writer.token_ids(0)
            writer.leave(0)
            writer.join(5, ids, prompt_tokens=4, sampling=sampling, seed=1)
            writer.compute(5, 20)
            writer.take(executor.step(writer.plan()))
        writer.compute_all()
        writer.take(executor.step(writer.plan()))
    assert writer.token_ids(5)[4:] == undisturbed


def test_preemption_for_want_of_blocks_changes_no_token(model: Path) -> None:
    prompts = prompts_of(48, 48, 30)
    outputs = []
    for blocks in (12, BLOCKS):
        worker = simulation(model, blocks)
        seeded = attrs.evolve(SAMPLED, seed=3, ignore_eos=True)
        streams = [worker.submit(prompt, 96, sampling=seeded) for prompt in prompts.values()]
        worker.run()
        assert (worker.planner.preemptions > 0) == (blocks == 12)
        outputs.append([worker.outputs[stream] for stream in streams])
    assert outputs[0] == outputs[1]
    assert [len(output) for output in outputs[0]] == [96] * 3


def test_a_sequence_that_fails_takes_nobody_with_it(model: Path) -> None:
    checkpoint = open_checkpoint(model)
    parameters = checkpoint.load()
    parameters["model.embed_tokens.weight"][50] = torch.nan
    table = TorchOptions(kv_memory=16384 * BLOCKS)  # type: ignore[arg-type]
    runner = make_runner(checkpoint.config, parameters.items(), table, site_of(model))
    sound = {0: [1, 2, 3], 2: [4, 5, 6, 7]}
    expected = generate(runner, sound, 8)
    runner.reset()
    writer = PlanWriter(BLOCKS, 16)
    for slot, prompt in (sound | {1: [8, 50, 9]}).items():
        writer.join(slot, prompt)
    writer.compute_all()
    done = runner.step(writer.plan())
    assert done.failed == (1,)
    assert done.slots.tolist() == [0, 2]
    writer.take(done)
    writer.leave(1)
    writer.join(1, [1, 2, 3])  # into the blocks that hold NaN
    for _ in range(7):
        writer.compute_all()
        done = runner.step(writer.plan())
        assert not done.failed
        writer.take(done)
    assert {slot: writer.token_ids(slot)[len(sound[slot]) :] for slot in sound} == expected
    assert writer.token_ids(1)[3:] == expected[0][:7]


def test_after_a_reset_nothing_of_before_is_left(model: Path) -> None:
    executor, _ = load(model)
    prompts = prompts_of(20, 40)
    expected = generate(executor, prompts, 8)
    generate(executor, {0: prompts[1], 1: prompts[0]}, 3)
    executor.reset()
    assert generate(executor, prompts, 8) == expected


def test_nothing_can_be_computed_before_loading_or_after_closing(model: Path) -> None:
    executor = torch_executor(options(), site_of(model))
    writer = PlanWriter(BLOCKS, 16)
    with pytest.raises(RuntimeError, match="has not loaded"):
        executor.step(writer.plan())
    executor.load(lambda stage: None)
    executor.close()
    with pytest.raises(RuntimeError, match="has not loaded"):
        executor.reset()


def test_a_step_beyond_the_token_limit_is_refused_before_it_is_computed(model: Path) -> None:
    executor, _ = load(model)
    writer = PlanWriter(BLOCKS, 16)
    for slot, prompt in prompts_of(200, 57).items():
        writer.join(slot, prompt)
    writer.compute_all()
    with pytest.raises(ValueError, match="a step of 257 tokens; there is room for 256"):
        executor.step(writer.plan())


def test_a_tokenizer_larger_than_the_embedding_is_refused(model: Path) -> None:
    executor = torch_executor(options(), site_of(model, vocabulary=97))
    with pytest.raises(LoadError, match="97 ids"):
        executor.load(lambda stage: None)


@pytest.mark.parametrize(("length", "chunk"), [(23, 5), (23, 100), (PROMPT_ROWS + 22, 160)])
def test_log_probabilities_are_those_of_transformers(
    model: Path, make_model: Callable[..., Any], length: int, chunk: int
) -> None:
    reference = make_model("llama").from_pretrained(model).eval()
    executor, _ = load(model)
    prompts = prompts_of(length, 12)
    writer = PlanWriter(BLOCKS, 16)
    writer.join(0, prompts[0], logprobs=3, prompt_logprobs=True)
    writer.join(1, prompts[1])  # a neighbour that asks for nothing
    prompt: list[PromptLogprobs] = []
    output: list[Logprobs] = []
    while len(output) < 4:
        writer.compute_all(chunk)
        done = executor.step(writer.plan())
        writer.take(done)
        prompt += [part for part in done.prompt_logprobs if part.stream == 0]
        if 0 in done.slots:
            assert done.logprobs is not None
            output.append(done.logprobs.rows(done.slots == 0))
    ids = writer.token_ids(0)
    with torch.no_grad():
        logits = reference(torch.tensor([ids])).logits[0, :, :96]
    expected = torch.log_softmax(logits.double(), dim=-1).numpy()
    for part in prompt:
        for row, position in enumerate(range(part.start, part.start + part.logprobs.chosen.size)):
            _same(part.logprobs, row, expected[position - 1], ids[position])
    assert sum(part.logprobs.chosen.size for part in prompt) == length - 1
    for number, logprobs in enumerate(output):
        _same(logprobs, 0, expected[length - 1 + number], ids[length + number])


def _same(logprobs: Logprobs, row: int, expected: Any, token: int) -> None:
    assert logprobs.chosen[row] == pytest.approx(expected[token], abs=1e-3)
    best = np.argsort(-expected)[:3]
    assert logprobs.top_ids[row].tolist() == best.tolist()
    np.testing.assert_allclose(logprobs.top[row], expected[best], atol=1e-3)
