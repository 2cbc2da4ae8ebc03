"""GGUF files: every format, architecture and metadata key against references."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from plancha.contracts import LoadError
from plancha_engine.checkpoint import open_checkpoint
from plancha_engine.gguf_checkpoint import decode
from plancha_engine.gguf_file import GgufTensor
from plancha_engine.rope import inverse_frequencies

Kind = gguf.GGMLQuantizationType
Make = Callable[..., Any]
BLOCKS = [
    Kind.F32, Kind.F16, Kind.BF16, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1, Kind.Q8_0,
    Kind.Q2_K, Kind.Q3_K, Kind.Q4_K, Kind.Q5_K, Kind.Q6_K, Kind.IQ4_NL, Kind.IQ4_XS,
]  # fmt: skip


def transformers_load(path: Path, model: Any) -> dict[str, torch.Tensor]:
    """The parameters `transformers` itself reads from the file."""
    load: Any = load_gguf_checkpoint
    loaded = load(str(path), return_tensors=True, model_to_load=model)
    tensors: dict[str, torch.Tensor] = loaded["tensors"]
    return tensors


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert set(found) == set(expected)
    for name, tensor in found.items():
        assert tensor.dtype == torch.float32 and tensor.is_contiguous()
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=0, msg=name)


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_parameters_equal_what_transformers_reads_from_the_same_file(
    make_model: Make, as_gguf: Make, tmp_path: Path, architecture: str, tied: bool
) -> None:
    model = make_model(architecture, tie_word_embeddings=tied)
    contents = as_gguf(model)
    matrices = [name for name, values in contents.tensors.items() if values.ndim == 2]
    for number, name in enumerate(matrices):
        contents.kinds[name] = (Kind.Q4_1, Kind.Q8_0, Kind.F16, Kind.Q4_0)[number % 4]
    path = contents.write(tmp_path / "model.gguf")

    found = open_checkpoint(path).load()

    expected = transformers_load(path, model)
    if tied:
        expected.pop("lm_head.weight", None)
    assert_same(found, expected)


@pytest.mark.parametrize("architecture", ["llama", "mistral", "qwen2", "qwen3"])
def test_a_float32_file_gives_back_the_model_it_was_made_from(
    make_model: Make, as_gguf: Make, tmp_path: Path, architecture: str
) -> None:
    model = make_model(architecture, tie_word_embeddings=False)
    path = as_gguf(model).write(tmp_path / "model.gguf")

    checkpoint = open_checkpoint(path)

    assert_same(checkpoint.load(), model.state_dict())
    config, expected = checkpoint.config, model.config
    assert config.layers == expected.num_hidden_layers == 2
    assert (config.hidden, config.intermediate) == (64, 160)
    assert (config.heads, config.kv_heads) == (4, 2)
    assert config.head_dim == (16 if architecture == "qwen2" else 32)
    assert (config.vocabulary, config.context_length) == (96, 512)
    assert config.norm_epsilon == pytest.approx(expected.rms_norm_eps, rel=1e-6)
    assert config.rope_theta == pytest.approx(expected.rope_parameters["rope_theta"])
    assert config.stop_ids == (7,)
    assert not config.tied_head
    assert config.qkv_bias == (architecture == "qwen2")
    assert config.qk_norm == (architecture == "qwen3")


@pytest.mark.parametrize("kind", BLOCKS, ids=lambda kind: kind.name)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_blocks_decode_as_the_gguf_package_decodes_the_whole_tensor(kind: Kind) -> None:
    block_values, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    rows, row_values = 2200, 256  # more than is decoded at once
    row_bytes = row_values // block_values * block_bytes
    data = np.random.default_rng(3).integers(0, 256, (rows, row_bytes), np.uint8)

    found = decode(GgufTensor("any", (rows, row_values), kind, data))

    expected = gguf.quants.dequantize(data, kind)
    np.testing.assert_array_equal(found.numpy(), expected.reshape(rows, row_values))


@pytest.mark.parametrize(
    ("kind", "step"),
    [(Kind.Q4_0, 1 / 8), (Kind.Q4_1, 2 / 15), (Kind.Q8_0, 1 / 127), (Kind.BF16, 1 / 128)],
    ids=lambda value: getattr(value, "name", None),
)
def test_quantised_values_are_within_a_step_of_what_was_written(kind: Kind, step: float) -> None:
    values = np.random.default_rng(5).uniform(-1, 1, (64, 256)).astype(np.float32)
    data = gguf.quants.quantize(values, kind)

    found = decode(GgufTensor("any", values.shape, kind, data.view(np.uint8)))

    assert np.abs(found.numpy() - values).max() <= step


def test_llama_3_scaling_stored_as_a_tensor_gives_the_scaled_frequencies(
    make_model: Make, as_gguf: Make, tmp_path: Path
) -> None:
    scaling = {
        "rope_type": "llama3",
        "rope_theta": 10000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    model = make_model("llama", rope_parameters=scaling)
    contents = as_gguf(model)
    unscaled = 10000.0 ** (-np.arange(0, 32, 2) / 32)
    divisors = unscaled / model.model.rotary_emb.inv_freq.double().numpy()
    contents.tensors["rope_freqs.weight"] = divisors.astype(np.float32)

    config = open_checkpoint(contents.write(tmp_path / "model.gguf")).config

    assert max(config.rope_divisors) == pytest.approx(8.0)
    torch.testing.assert_close(
        inverse_frequencies(config), model.model.rotary_emb.inv_freq, rtol=1e-6, atol=0
    )


@pytest.mark.parametrize(
    "metadata",
    [
        {"{arch}.rope.scaling.type": "linear", "{arch}.rope.scaling.factor": 4.0},
        {"{arch}.rope.scale_linear": 4.0},
    ],
)
def test_linear_scaling_is_read_from_either_key(
    make_model: Make, as_gguf: Make, tmp_path: Path, metadata: dict[str, Any]
) -> None:
    contents = as_gguf(make_model("llama"))
    contents.metadata |= metadata

    config = open_checkpoint(contents.write(tmp_path / "model.gguf")).config

    assert config.rope_scaling is not None
    assert (config.rope_scaling.kind, config.rope_scaling.factor) == ("linear", 4.0)


def test_every_end_of_sequence_id_stops_once(
    make_model: Make, as_gguf: Make, tmp_path: Path
) -> None:
    contents = as_gguf(make_model("llama"))
    contents.metadata |= {"tokenizer.ggml.eot_token_id": 9, "tokenizer.ggml.eom_token_id": 7}

    assert open_checkpoint(contents.write(tmp_path / "model.gguf")).config.stop_ids == (7, 9)


def test_a_sliding_window_limits_the_context_and_says_so(
    make_model: Make, as_gguf: Make, tmp_path: Path
) -> None:
    contents = as_gguf(make_model("llama"))
    contents.metadata["{arch}.attention.sliding_window"] = 128

    checkpoint = open_checkpoint(contents.write(tmp_path / "model.gguf"))

    assert checkpoint.config.context_length == 128
    assert "128 tokens instead of 512" in checkpoint.notes[0]


REFUSED_METADATA = [
    ({"{arch}.rope.scaling.type": "yarn"}, "llama.rope.scaling.type is 'yarn'"),
    ({"{arch}.expert_count": 8}, "llama.expert_count is 8"),
    ({"{arch}.rope.dimension_count": 16}, "llama.rope.dimension_count is 16, must be .* 32"),
    ({"{arch}.attention.value_length": 16}, "llama.attention.value_length is 16"),
    ({"{arch}.attention.head_count": "four"}, "llama.attention.head_count is 'four', must be an"),
    ({"{arch}.attention.head_count_kv": [2, 2]}, r"head_count_kv is .*, must be an integer"),
    ({"{arch}.attention.head_count_kv": 3}, "kv_heads is 3, must be a divisor of heads = 4"),
    ({"{arch}.attention.head_count": 0}, "heads is 0, must be at least 1"),
    ({"{arch}.block_count": 0}, "layers is 0, must be at least 1"),
    ({"{arch}.context_length": 0}, "context_length is 0"),
    ({"{arch}.rope.freq_base": float("nan")}, "rope_theta is nan, must be positive"),
    ({"{arch}.attention.layer_norm_rms_epsilon": 0.0}, "norm_epsilon is 0.0, must be positive"),
    ({"tokenizer.ggml.eos_token_id": 96}, r"end-of-sequence id 96 .*\(0 to 95\)"),
    ({"split.count": 3}, "split.count is 3: merge the parts"),
    ({"{arch}.block_count": None}, "llama.block_count is missing"),
    ({"{arch}.embedding_length": None}, "llama.embedding_length is missing"),
    ({"{arch}.block_count": 3}, r"tensor model.layers.2.input_layernorm.weight \[64\] is missing"),
    ({"{arch}.block_count": 2**31}, "tensor model.layers.2.input_layernorm.weight"),
    ({"{arch}.block_count": 1}, r"tensor model.layers.1.\S+ .*and 8 more.* of 1 layers"),
    ({"{arch}.feed_forward_length": 128}, r"gate_proj.weight has shape \[160, 64\]"),
]  # fmt: skip


@pytest.mark.parametrize(("metadata", "message"), REFUSED_METADATA)
def test_what_cannot_be_served_is_refused_by_its_key(
    make_model: Make, as_gguf: Make, tmp_path: Path, metadata: dict[str, Any], message: str
) -> None:
    contents = as_gguf(make_model("llama"))
    contents.metadata |= metadata
    path = contents.write(tmp_path / "model.gguf")

    with pytest.raises(LoadError, match=message) as error:
        open_checkpoint(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("architecture", ["gemma", "mamba", "Llama"])
def test_an_unknown_architecture_is_refused_with_those_known(
    make_model: Make, as_gguf: Make, tmp_path: Path, architecture: str
) -> None:
    contents = as_gguf(make_model("llama"))
    contents.architecture = architecture

    with pytest.raises(LoadError, match=f"is '{architecture}', must be one of: llama, qwen2"):
        open_checkpoint(contents.write(tmp_path / "model.gguf"))


def test_a_missing_tensor_is_named(make_model: Make, as_gguf: Make, tmp_path: Path) -> None:
    contents = as_gguf(make_model("qwen3"))
    del contents.tensors["blk.1.attn_q_norm.weight"]

    with pytest.raises(LoadError, match=r"model.layers.1.self_attn.q_norm.weight \[32\] is miss"):
        open_checkpoint(contents.write(tmp_path / "model.gguf"))


def test_an_unused_tensor_is_named(make_model: Make, as_gguf: Make, tmp_path: Path) -> None:
    contents = as_gguf(make_model("llama"))
    contents.tensors["blk.0.attn_q.bias"] = np.zeros(128, np.float32)

    with pytest.raises(LoadError, match=r"model.layers.0.self_attn.q_proj.bias \[128\] has no pl"):
        open_checkpoint(contents.write(tmp_path / "model.gguf"))


def test_a_misshapen_tensor_is_named_with_both_shapes(
    make_model: Make, as_gguf: Make, tmp_path: Path
) -> None:
    contents = as_gguf(make_model("qwen2"))
    contents.tensors["blk.1.ffn_down.weight"] = np.zeros((160, 64), np.float32)

    message = r"model.layers.1.mlp.down_proj.weight has shape \[160, 64\], must be \[64, 160\]"
    with pytest.raises(LoadError, match=message):
        open_checkpoint(contents.write(tmp_path / "model.gguf"))


def test_a_tensor_that_holds_nan_is_named_when_it_is_read(
    make_model: Make, as_gguf: Make, tmp_path: Path
) -> None:
    contents = as_gguf(make_model("llama"))
    contents.tensors["blk.1.ffn_up.weight"][3, 5] = np.nan
    checkpoint = open_checkpoint(contents.write(tmp_path / "model.gguf"))

    with pytest.raises(LoadError, match=r"model.layers.1.mlp.up_proj.weight holds NaN"):
        checkpoint.load()


def test_a_value_too_large_for_float16_is_refused_in_float16_only(
    make_model: Make, as_gguf: Make, tmp_path: Path
) -> None:
    contents = as_gguf(make_model("llama"))
    contents.tensors["blk.1.ffn_up.weight"][3, 5] = 70000.0
    checkpoint = open_checkpoint(contents.write(tmp_path / "model.gguf"))

    assert checkpoint.load(torch.bfloat16)["model.norm.weight"].dtype == torch.bfloat16
    with pytest.raises(LoadError, match=r"up_proj.weight reaches 70000, more than float16"):
        checkpoint.load(torch.float16)


@pytest.mark.model
def test_the_default_model_is_what_transformers_reads_from_its_file(model_file: Path) -> None:
    # The sizes its makers publish: https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct
    config = transformers.LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        tie_word_embeddings=True,
    )
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)

    checkpoint = open_checkpoint(model_file)

    found = checkpoint.load()
    assert sum(tensor.numel() for tensor in found.values()) == 134_515_008
    assert_same(found, transformers_load(model_file, model))
    assert checkpoint.config.stop_ids == (2,)
    assert (checkpoint.config.context_length, checkpoint.config.tied_head) == (8192, True)
    assert checkpoint.notes == ()
    expected = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(config).inv_freq
    torch.testing.assert_close(inverse_frequencies(checkpoint.config), expected, rtol=0, atol=0)
