"""A model with random weights says only what its schema lets through, whatever befalls it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import jsonschema
import numpy as np
import pytest
import torch

from plancha.contracts import Site
from plancha.plugins import find
from plancha.sampling import Sampling
from plancha.testing.plan_writer import PlanWriter
from plancha.testing.simulation import Simulation
from plancha_engine.executor import TorchExecutor, torch_executor

EOS, VOCABULARY = 257, 260
BLOCK_BYTES = 16384  # 2 x 2 layers x 2 heads x 16 x 32 x 4
WILD = Sampling(temperature=1.5, seed=11)

EMPLOYEE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 12},
        "age": {"type": "integer", "minimum": 18, "maximum": 99},
        "tags": {
            "type": "array",
            "items": {"enum": ["red", "green", "blue"]},
            "minItems": 1,
            "maxItems": 3,
        },
        "boss": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/boss"}]},
        "since": {"type": "string", "pattern": "^20[0-9]{2}-[01][0-9]$"},
    },
    "required": ["name", "age", "tags", "boss", "since"],
    "additionalProperties": False,
    "$defs": {
        "boss": {
            "type": "object",
            "properties": {"paid": {"type": "boolean"}},
            "required": ["paid"],
            "additionalProperties": False,
        }
    },
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "employee": EMPLOYEE,
    "boolean": {"type": "boolean"},
    "matrix": {
        "type": "array",
        "minItems": 2,
        "maxItems": 2,
        "items": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2},
    },
    "either": {"anyOf": [{"const": "a\nb"}, {"const": {"c": [1, 2.5, None]}}]},
}


@pytest.fixture
def model(make_model: Callable[..., Any], tmp_path: Path) -> Path:
    tiny = make_model("llama", vocab_size=264, eos_token_id=EOS)
    with torch.no_grad():
        tiny.lm_head.weight.mul_(40)  # spread out, so that no two logits are ever nearly equal
    tiny.save_pretrained(tmp_path)
    return tmp_path


def plain_bytes(token: int) -> bytes:
    return bytes([token]) if token < 256 else b""


def site_of(model: Path, **changes: Any) -> Site:
    site = Site(
        max_sequences=8,
        max_batched_tokens=64,
        max_waiting=64,
        block_size=16,
        model=str(model),
        vocabulary=VOCABULARY,
        plain_bytes=plain_bytes,
    )
    return attrs.evolve(site, **changes)


def executor_of(model: Path, blocks: int = 64, **changes: Any) -> TorchExecutor:
    options = {"kv_memory": BLOCK_BYTES * blocks, "threads": 1}
    return torch_executor(options, site_of(model, **changes))


def simulation(model: Path, blocks: int = 64) -> Simulation:
    return Simulation(
        executor_of(model, blocks),
        site_of(model),
        lambda site: find("plancha.schedulers", "fcfs")({}, site),
        lambda site: find("plancha.allocators", "paged")({}, site),
    )


def text_of(output: list[int]) -> str:
    assert output[-1] == EOS
    return bytes(output[:-1]).decode()


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
@pytest.mark.parametrize(
    "sampling",
    [WILD, Sampling(temperature=0, frequency_penalty=2), Sampling(top_k=3, top_p=0.9, seed=5)],
    ids=["wild", "greedy", "filtered"],
)
def test_a_random_model_writes_json_that_follows(
    model: Path, schema: dict[str, Any], sampling: Sampling
) -> None:
    worker = simulation(model)
    stream = worker.submit(list(b"Say: "), sampling=sampling, n=4, grammar=json.dumps(schema))
    worker.run()
    outputs = [text_of(worker.outputs[stream + choice]) for choice in range(4)]
    for output in outputs:
        jsonschema.validate(json.loads(output), schema)
    assert {end.reason for end in worker.finished.values()} == {"stop"}
    if sampling is WILD and schema is EMPLOYEE:
        assert len(set(outputs)) == 4


def test_neighbours_without_a_schema_are_not_touched(model: Path) -> None:
    free = attrs.evolve(WILD, ignore_eos=True)
    outputs = []
    for grammar in (None, json.dumps(EMPLOYEE)):
        worker = simulation(model)
        stream = worker.submit(list(b"Free: "), 40, sampling=free)
        worker.submit(list(b"Held: "), 40, sampling=WILD, grammar=grammar)
        worker.run()
        outputs.append(worker.outputs[stream])
    assert outputs[0] == outputs[1]


def test_preemption_changes_nothing(model: Path) -> None:
    outputs = []
    for blocks in (64, 9):
        worker = simulation(model, blocks)
        streams = [
            worker.submit(
                list(b"Say: " * 5),
                90,
                sampling=attrs.evolve(WILD, seed=seed),
                grammar=json.dumps(EMPLOYEE),
            )
            for seed in range(3)
        ]
        worker.run()
        assert (worker.planner.preemptions > 0) == (blocks == 9)
        outputs.append([worker.outputs[stream] for stream in streams])
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("limit", [1, 2, 5, 11])
def test_what_max_tokens_cuts_off_is_the_beginning_of_what_follows(model: Path, limit: int) -> None:
    words = ["a longer word", "b: another", "c, and one more"]
    worker = simulation(model)
    stream = worker.submit(
        list(b"Say: "), limit, sampling=WILD, grammar=json.dumps({"enum": words}), n=3
    )
    worker.run()
    for choice in range(3):
        assert worker.finished[stream + choice].reason == "length"
        text = bytes(worker.outputs[stream + choice]).decode()
        assert len(text) == limit
        assert any(json.dumps(word).startswith(text) for word in words)


def test_log_probabilities_are_the_models_own(model: Path) -> None:
    """Of the output as it is sampled under a schema, and of the same text as a scored prompt."""
    executor = executor_of(model)
    executor.load(lambda stage: None)
    writer = PlanWriter(64, 16)
    writer.join(
        0, b"Say: ", sampling=WILD, stop_ids=(EOS,), logprobs=2, grammar='{"enum": ["yes", "no"]}'
    )
    sampled: list[float] = []
    best: list[list[int]] = []
    for _ in range(4):
        writer.compute_all()
        done = executor.step(writer.plan())
        assert done.logprobs is not None
        sampled.append(float(done.logprobs.chosen[0]))
        best.append(done.logprobs.top_ids[0].tolist())
        writer.take(done)
    ids = writer.token_ids(0)
    writer.leave(0)
    writer.join(1, ids, logprobs=2, prompt_logprobs=True)
    writer.compute_all()
    (scored,) = executor.step(writer.plan()).prompt_logprobs
    np.testing.assert_allclose(sampled, scored.logprobs.chosen[4:], atol=1e-3)
    assert best == scored.logprobs.top_ids[4:].tolist()
    assert any(chr(token) not in '"yesno' for some in best for token in some)


def test_a_sequence_whose_grammar_fails_takes_nobody_with_it(model: Path) -> None:
    executor = executor_of(model)
    executor.load(lambda stage: None)
    writer = PlanWriter(64, 16)
    writer.join(0, b"Say: [", prompt_tokens=5, sampling=WILD, grammar='{"type": "integer"}')
    writer.join(1, b"Say: ", sampling=WILD, grammar='{"type": "integer"}')
    writer.join(2, b"Say: ", sampling=WILD)
    writer.compute_all()
    done = executor.step(writer.plan())
    assert done.failed == (0,)
    assert done.slots.tolist() == [1, 2]
    assert chr(done.tokens[0]) in "-0123456789"


def test_grammars_need_texts_and_an_end_of_sequence(
    make_model: Callable[..., Any], model: Path, tmp_path: Path
) -> None:
    assert executor_of(model).load(lambda stage: None).grammars
    assert not executor_of(model, plain_bytes=None).load(lambda stage: None).grammars
    endless = tmp_path / "endless"
    make_model("llama", vocab_size=264, eos_token_id=None).save_pretrained(endless)
    assert not executor_of(endless).load(lambda stage: None).grammars


def test_without_the_extra_there_are_no_grammars(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plancha_engine.executor.grammar_installed", lambda: False)
    assert not executor_of(model).load(lambda stage: None).grammars
