"""Tiny random models, made by `transformers`, and the same written as GGUF files."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import gguf
import numpy as np
import numpy.typing as npt
import pytest
import torch
import transformers

Kind = gguf.GGMLQuantizationType

CLASSES = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
    "mistral": (transformers.MistralConfig, transformers.MistralForCausalLM),
    "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
}
SIZES = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 512,
    "eos_token_id": 7,
    "bos_token_id": 1,
    "pad_token_id": None,
}
MakeModel = Callable[..., Any]


@pytest.fixture
def make_model() -> MakeModel:
    """`make_model(architecture, **config)`: a `transformers` model with random weights."""

    def make(architecture: str, **config: Any) -> Any:
        config_class, model_class = CLASSES[architecture]
        torch.manual_seed(len(architecture))
        sizes = SIZES if architecture != "qwen2" else SIZES | {"head_dim": 16}
        model: Any = model_class(config_class(**(sizes | config))).eval()
        with torch.no_grad():  # norms and biases start as ones and zeros, which hide mix-ups
            for parameter in model.parameters():
                if parameter.ndim == 1:
                    parameter.add_(torch.randn_like(parameter) * 0.1)
        return model

    return make


@attrs.define
class GgufContents:
    """What a test writes into a GGUF file, to be changed before it is written."""

    architecture: str
    metadata: dict[str, Any]
    tensors: dict[str, npt.NDArray[np.float32]]
    kinds: dict[str, Kind] = attrs.field(factory=dict)  # F32 where nothing is said

    def write(self, path: Path) -> Path:
        writer = gguf.GGUFWriter(path, self.architecture)
        for key, value in self.metadata.items():
            _add(writer, key.replace("{arch}", self.architecture), value)
        for name, values in self.tensors.items():
            kind = self.kinds.get(name, Kind.F32)
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    match value:
        case str():
            writer.add_string(key, value)
        case float():
            writer.add_float32(key, value)
        case list():
            writer.add_array(key, value)
        case int():
            writer.add_uint32(key, value)


@pytest.fixture
def as_gguf() -> Callable[[Any], GgufContents]:
    """A `transformers` model as the contents llama.cpp's converter would write."""
    return gguf_contents


def gguf_contents(model: Any) -> GgufContents:
    config = model.config
    architecture = "llama" if config.model_type == "mistral" else config.model_type
    return GgufContents(
        architecture=architecture,
        metadata={
            "{arch}.block_count": config.num_hidden_layers,
            "{arch}.context_length": config.max_position_embeddings,
            "{arch}.embedding_length": config.hidden_size,
            "{arch}.feed_forward_length": config.intermediate_size,
            "{arch}.attention.head_count": config.num_attention_heads,
            "{arch}.attention.head_count_kv": config.num_key_value_heads,
            "{arch}.attention.key_length": config.hidden_size // config.num_attention_heads
            if config.model_type == "qwen2"
            else config.head_dim,
            "{arch}.attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
            "{arch}.rope.freq_base": float(config.rope_parameters["rope_theta"]),
            "{arch}.vocab_size": config.vocab_size,
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.tokens": [f"<{number}>" for number in range(config.vocab_size)],
            "tokenizer.ggml.merges": ["< 1", "1 >"],
            "tokenizer.ggml.eos_token_id": config.eos_token_id,
        },
        tensors=_gguf_tensors(model, interleaved=architecture == "llama"),
    )


def _gguf_tensors(model: Any, interleaved: bool) -> dict[str, npt.NDArray[np.float32]]:
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, model.config.num_hidden_layers)
    state: Mapping[str, torch.Tensor] = model.state_dict()
    tensors = {}
    for name, tensor in state.items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        values = tensor.numpy()
        if interleaved and name.endswith(("q_proj.weight", "k_proj.weight")):
            heads = len(values) // model.config.head_dim
            halves = values.reshape(heads, 2, model.config.head_dim // 2, -1)
            values = halves.swapaxes(1, 2).reshape(values.shape)
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert stored is not None, name
        tensors[stored] = np.ascontiguousarray(values)
    return tensors
