"""Rotary tables against `transformers`, through every way a config can say them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from plancha.contracts import LoadError
from plancha_engine.hugging_face_config import read_config
from plancha_engine.rope import cos_sin, inverse_frequencies

POSITIONS = [0, 1, 63, 64, 200]
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
SCALINGS: list[dict[str, Any] | None] = [
    None,
    {"rope_type": "default"},
    {"rope_type": "linear", "factor": 4.0},
    LLAMA3,
]
SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 128,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
}


def folder_of(tmp_path: Path, **keys: Any) -> Path:
    config = {"architectures": ["LlamaForCausalLM"], **SIZES, **keys}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


def old_names(scaling: dict[str, Any] | None) -> dict[str, Any]:
    """As transformers before 4.43 named it: `type`."""
    if scaling is None:
        return {"rope_scaling": None}
    rest = {key: value for key, value in scaling.items() if key != "rope_type"}
    return {"rope_scaling": {"type": scaling["rope_type"], **rest}}


@pytest.mark.parametrize("theta", [10000.0, 500000.0])
@pytest.mark.parametrize("scaling", SCALINGS, ids=["none", "default", "linear", "llama3"])
@pytest.mark.parametrize("naming", ["rope_parameters", "rope_scaling", "type"])
def test_cos_and_sin_equal_the_reference(
    tmp_path: Path, naming: str, scaling: dict[str, Any] | None, theta: float
) -> None:
    match naming:
        case "rope_parameters":
            keys: dict[str, Any] = {"rope_parameters": {"rope_theta": theta, **(scaling or {})}}
        case "rope_scaling":
            keys = {"rope_theta": theta, "rope_scaling": scaling}
        case _:
            keys = {"rope_theta": theta, **old_names(scaling)}
    config = read_config(folder_of(tmp_path, **keys))

    cos, sin = cos_sin(inverse_frequencies(config), 201)

    parameters = {"rope_type": "default", "rope_theta": theta, **(scaling or {})}
    reference = LlamaRotaryEmbedding(LlamaConfig(**SIZES, rope_parameters=parameters))
    positions = torch.tensor([POSITIONS])
    expected_cos, expected_sin = reference(torch.zeros(1), positions)
    torch.testing.assert_close(cos[POSITIONS], expected_cos[0, :, :16], rtol=0, atol=0)
    torch.testing.assert_close(sin[POSITIONS], expected_sin[0, :, :16], rtol=0, atol=0)
    assert config.context_length == 256  # as declared, whatever the scaling


@pytest.mark.parametrize("key", ["rope_parameters", "rope_scaling"])
@pytest.mark.parametrize("name", ["rope_type", "type"])
@pytest.mark.parametrize("kind", ["dynamic", "yarn", "longrope", "extended", 3])
def test_other_scalings_are_refused_by_name(
    tmp_path: Path, key: str, name: str, kind: object
) -> None:
    folder = folder_of(tmp_path, **{key: {name: kind, "factor": 2.0}})

    with pytest.raises(LoadError, match=rf"{key}\.{name} is {kind!r}, must be default, linear or"):
        read_config(folder)


@pytest.mark.parametrize("key", [key for key in LLAMA3 if key != "rope_type"])
def test_a_missing_number_of_llama3_is_named(tmp_path: Path, key: str) -> None:
    scaling = {name: value for name, value in LLAMA3.items() if name != key}

    with pytest.raises(LoadError, match=rf"rope_scaling\.{key} is missing"):
        read_config(folder_of(tmp_path, rope_scaling=scaling))


def test_frequencies_given_per_layer_type_are_refused(tmp_path: Path) -> None:
    nested = {"full_attention": {"rope_type": "default"}, "sliding_attention": {}}

    with pytest.raises(LoadError, match=r"rope_parameters.full_attention"):
        read_config(folder_of(tmp_path, rope_parameters=nested))
