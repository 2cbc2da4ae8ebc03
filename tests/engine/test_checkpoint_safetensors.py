"""Safetensors folders written by `transformers` itself, whole and damaged."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from plancha.contracts import LoadError
from plancha_engine.checkpoint import open_checkpoint

Make = Callable[..., Any]
INDEX = "model.safetensors.index.json"


@pytest.fixture
def save(make_model: Make, tmp_path: Path) -> Make:
    """`save(architecture, shard=None, dtype=…, **config)`: the model and the folder it is in."""

    def save_model(
        architecture: str = "llama",
        shard: str | None = None,
        dtype: torch.dtype = torch.float32,
        **config: Any,
    ) -> tuple[Any, Path]:
        model = make_model(architecture, **config).to(dtype)
        folder = tmp_path / "model"
        model.save_pretrained(folder, max_shard_size=shard or "1GB")
        return model, folder

    return save_model


def edit(path: Path, **keys: Any) -> None:
    """Set keys of a JSON file; `...` removes one."""
    content = json.loads(path.read_text()) | keys
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not ...}))


def assert_parameters(folder: Path, expected: dict[str, torch.Tensor]) -> None:
    found = open_checkpoint(folder).load()
    assert set(found) == set(expected)
    for name, tensor in found.items():
        assert tensor.dtype == torch.float32 and tensor.is_contiguous()
        torch.testing.assert_close(tensor, expected[name].float(), rtol=0, atol=0, msg=name)


def parameters(model: Any) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = dict(model.state_dict())
    if model.config.tie_word_embeddings:
        del state["lm_head.weight"]
    return state


@pytest.mark.parametrize("architecture", ["llama", "mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("shard", [None, "60KB"], ids=["single", "sharded"])
def test_parameters_and_config_are_the_saved_model_s(
    save: Make, architecture: str, tied: bool, shard: str | None
) -> None:
    model, folder = save(architecture, shard, tie_word_embeddings=tied)
    assert (folder / INDEX).exists() == (shard is not None)

    assert_parameters(folder, parameters(model))
    checkpoint = open_checkpoint(folder)
    config, expected = checkpoint.config, model.config
    assert config.architecture == architecture
    assert (config.layers, config.hidden, config.intermediate) == (2, 64, 160)
    assert (config.heads, config.kv_heads) == (4, 2)
    assert config.head_dim == (16 if architecture == "qwen2" else 32)
    assert (config.vocabulary, config.context_length) == (96, 512)
    assert config.norm_epsilon == expected.rms_norm_eps
    assert config.rope_theta == expected.rope_parameters["rope_theta"]
    assert (config.tied_head, config.stop_ids) == (tied, (7,))
    assert config.qkv_bias == (architecture == "qwen2")
    assert config.qk_norm == (architecture == "qwen3")
    assert checkpoint.notes == ()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_files_become_float32(save: Make, dtype: torch.dtype) -> None:
    model, folder = save(dtype=dtype)

    assert_parameters(folder, parameters(model))


def test_a_stale_head_beside_a_tied_one_is_ignored_with_a_note(save: Make) -> None:
    model, folder = save(tie_word_embeddings=True)
    stored = load_file(folder / "model.safetensors")
    stored["lm_head.weight"] = torch.full((96, 64), 9.0)
    save_file(stored, folder / "model.safetensors", {"format": "pt"})

    assert_parameters(folder, parameters(model))
    assert "lm_head.weight ignored" in open_checkpoint(folder).notes[0]


def test_an_untied_head_that_is_absent_is_missing(save: Make) -> None:
    _, folder = save(tie_word_embeddings=True)
    edit(folder / "config.json", tie_word_embeddings=False)

    with pytest.raises(LoadError, match=r"tensor lm_head.weight \[96, 64\] is missing"):
        open_checkpoint(folder)


def test_the_rotary_table_in_old_folders_is_left_alone(save: Make) -> None:
    model, folder = save()
    stored = load_file(folder / "model.safetensors")
    stored["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(16)
    save_file(stored, folder / "model.safetensors", {"format": "pt"})

    assert_parameters(folder, parameters(model))


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("model.norm.weight", None, r"tensor model.norm.weight \[64\] is missing"),
        ("model.norm.weight", torch.ones(65), r"has shape \[65\], must be \[64\]"),
        ("model.extra", torch.ones(2, 3), r"tensor model.extra \[2, 3\] has no place in a llama"),
        ("model.norm.weight", torch.ones(64, dtype=torch.int8), "is torch.int8, must be"),
        ("model.norm.weight", torch.full((64,), torch.inf), "holds NaN or infinity"),
    ],
)
def test_a_tensor_that_is_not_right_is_named(
    save: Make, name: str, tensor: torch.Tensor | None, message: str
) -> None:
    _, folder = save()
    stored = load_file(folder / "model.safetensors")
    if tensor is None:
        del stored[name]
    else:
        stored[name] = tensor
    save_file(stored, folder / "model.safetensors", {"format": "pt"})

    with pytest.raises(LoadError, match=message):
        open_checkpoint(folder).load()


def shards(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("model-*.safetensors"))


def test_every_missing_shard_is_listed(save: Make) -> None:
    _, folder = save(shard="60KB")
    first, second, *_ = shards(folder)
    (folder / first).unlink()
    (folder / second).unlink()

    with pytest.raises(LoadError, match=f"missing {first}, {second}; is the download complete"):
        open_checkpoint(folder)


def test_an_empty_shard_is_named(save: Make) -> None:
    _, folder = save(shard="60KB")
    name = shards(folder)[1]
    (folder / name).write_bytes(b"")

    with pytest.raises(LoadError, match=f"empty file {name}; is the download complete"):
        open_checkpoint(folder)


@pytest.mark.parametrize("keep", [4, 100, -1])
def test_a_shard_cut_short_is_named(save: Make, keep: int) -> None:
    _, folder = save(shard="60KB")
    name = shards(folder)[1]
    (folder / name).write_bytes((folder / name).read_bytes()[:keep])

    with pytest.raises(LoadError, match=f"{name}: .*is the download complete"):
        open_checkpoint(folder)


def test_without_an_index_all_shards_of_the_set_are_used(save: Make) -> None:
    model, folder = save(shard="60KB")
    (folder / INDEX).unlink()

    assert_parameters(folder, parameters(model))


def test_without_an_index_a_shard_missing_from_the_set_is_named(save: Make) -> None:
    _, folder = save(shard="60KB")
    (folder / INDEX).unlink()
    name = shards(folder)[-1]
    (folder / name).unlink()

    with pytest.raises(LoadError, match=f"missing {name}; is the download complete"):
        open_checkpoint(folder)


def test_without_an_index_a_stray_file_makes_the_set_unclear(save: Make) -> None:
    _, folder = save(shard="60KB")
    (folder / INDEX).unlink()
    save_file({"a": torch.ones(1)}, folder / "adapter.safetensors")
    (folder / shards(folder)[0]).rename(folder / "model-00001-of-00099.safetensors")

    with pytest.raises(LoadError, match=r"which to load of .*adapter.safetensors"):
        open_checkpoint(folder)


def test_a_stray_file_is_ignored_when_an_index_exists(save: Make) -> None:
    model, folder = save(shard="60KB")
    save_file({"stray": torch.ones(1)}, folder / "adapter.safetensors")
    (folder / "model-00009-of-00009.safetensors").write_bytes(b"")

    assert_parameters(folder, parameters(model))


def test_an_index_that_points_out_of_its_folder_is_refused(save: Make) -> None:
    _, folder = save(shard="60KB")
    for outside in ("../other.safetensors", "/etc/passwd", "weights.bin", 7):
        edit(folder / INDEX, weight_map={"model.norm.weight": outside})
        with pytest.raises(LoadError, match=r"must be a .safetensors file of this folder"):
            open_checkpoint(folder)


def test_an_index_that_disagrees_with_its_shards_is_refused(save: Make) -> None:
    _, folder = save(shard="60KB")
    entries = json.loads((folder / INDEX).read_text())["weight_map"]
    edit(folder / INDEX, weight_map=entries | {"model.absent": shards(folder)[0]})
    with pytest.raises(
        LoadError, match=f"model.absent is in {INDEX}, but not in {shards(folder)[0]}"
    ):
        open_checkpoint(folder)

    moved = {"model.norm.weight": shards(folder)[0]}
    edit(folder / INDEX, weight_map=entries | moved)
    with pytest.raises(LoadError, match=f"model.norm.weight is not where {INDEX} has it"):
        open_checkpoint(folder)


def test_a_tensor_in_two_shards_is_refused(save: Make) -> None:
    _, folder = save(shard="60KB")
    (folder / INDEX).unlink()
    first, second, *_ = shards(folder)
    (folder / second).write_bytes((folder / first).read_bytes())

    with pytest.raises(LoadError, match=f"{second}: tensor .* is in another shard too"):
        open_checkpoint(folder)


def test_pickled_weights_are_refused_with_the_reason(save: Make) -> None:
    _, folder = save()
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")

    with pytest.raises(LoadError, match=r"pickled weights \(pytorch_model.bin\), which can run c"):
        open_checkpoint(folder)


def test_a_folder_that_is_no_model_s_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"no config.json$"):
        open_checkpoint(tmp_path)
    (tmp_path / "model.gguf").touch()
    with pytest.raises(LoadError, match=r"no config.json; name a GGUF file itself: .*model.gguf"):
        open_checkpoint(tmp_path)


def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"nowhere.gguf: No such file"):
        open_checkpoint(tmp_path / "nowhere.gguf")


REFUSED_KEYS: list[tuple[dict[str, Any], str]] = [
    ({"architectures": ["GPT2LMHeadModel"]}, r"architectures is \['GPT2LMHeadModel'\], must be"),
    ({"architectures": ...}, "architectures is missing, must be one of: LlamaForCausalLM, Mis"),
    ({"architectures": "LlamaForCausalLM"}, "architectures is 'LlamaForCausalLM', must be"),
    ({"architectures": [["LlamaForCausalLM"]]}, "must be one of"),
    ({"hidden_act": "gelu"}, "hidden_act is 'gelu', must be 'silu': nothing else is supported"),
    ({"attention_bias": True}, "attention_bias is True, must be False"),
    ({"mlp_bias": True}, "mlp_bias is True, must be False"),
    ({"quantization_config": {"quant_method": "awq"}}, "quantization_config is .*awq"),
    ({"hidden_size": ...}, "hidden_size is missing, must be an integer"),
    ({"hidden_size": "64"}, "hidden_size is '64', must be an integer"),
    ({"num_hidden_layers": True}, "num_hidden_layers is True, must be an integer"),
    ({"num_attention_heads": 0}, "heads is 0, must be at least 1"),
    ({"num_key_value_heads": 3}, "kv_heads is 3, must be a divisor of heads = 4"),
    ({"head_dim": 31}, "head_dim is 31, must be even"),
    ({"rms_norm_eps": "small"}, "rms_norm_eps is 'small', must be a number"),
    ({"rms_norm_eps": -1}, "norm_epsilon is -1.0, must be positive"),
    ({"rope_parameters": [1]}, r"rope_parameters is \[1\], must be an object"),
    ({"rope_parameters": {"rope_type": "linear", "factor": 0}}, "scaling factor is 0.0, must be"),
    ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor is 0.5"),
    ({"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no', must be true or false"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "message"), REFUSED_KEYS)
def test_a_config_that_cannot_be_served_is_refused_by_its_key(
    save: Make, keys: dict[str, Any], message: str
) -> None:
    _, folder = save()
    edit(folder / "config.json", **keys)

    with pytest.raises(LoadError, match=message) as error:
        open_checkpoint(folder)
    assert str(error.value).startswith(str(folder))


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "\0"])
def test_a_config_that_is_not_a_json_object_is_refused(save: Make, content: str) -> None:
    _, folder = save()
    (folder / "config.json").write_text(content)

    with pytest.raises(LoadError, match=r"config.json: (not JSON|must hold a JSON object)"):
        open_checkpoint(folder)


def test_stop_ids_are_those_of_the_generation_config_first(save: Make) -> None:
    _, folder = save()
    generation = folder / "generation_config.json"

    def stop_ids(value: Any) -> tuple[int, ...]:
        edit(generation, eos_token_id=value)
        return open_checkpoint(folder).config.stop_ids

    assert stop_ids([5, 9, 5]) == (5, 9)
    assert stop_ids(3) == (3,)
    assert stop_ids(None) == (7,)  # config.json's
    edit(folder / "config.json", eos_token_id=None)
    assert stop_ids(...) == ()
    with pytest.raises(LoadError, match="eos_token_id is 'x', must be an integer or a list"):
        stop_ids("x")
    with pytest.raises(LoadError, match="eos_token_id is True, must be an integer or a list"):
        stop_ids(True)
    with pytest.raises(LoadError, match="end-of-sequence id 96 is outside the vocabulary"):
        stop_ids([5, 96])


@pytest.mark.parametrize(
    ("architecture", "keys", "context"),
    [
        ("mistral", {"sliding_window": 100}, 100),
        ("mistral", {"sliding_window": None}, 512),
        ("mistral", {"sliding_window": 4096}, 512),
        ("qwen2", {"sliding_window": 100, "use_sliding_window": True}, 100),
        ("qwen2", {"sliding_window": 100, "use_sliding_window": False}, 512),
        ("qwen3", {"sliding_window": 100, "use_sliding_window": True}, 100),
    ],
)
def test_a_sliding_window_in_use_limits_the_context(
    save: Make, architecture: str, keys: dict[str, Any], context: int
) -> None:
    _, folder = save(architecture)
    edit(folder / "config.json", **keys)

    checkpoint = open_checkpoint(folder)

    assert checkpoint.config.context_length == context
    assert len(checkpoint.notes) == (context < 512)


def test_a_mistral_without_the_key_slides_over_4096_tokens_as_transformers_has_it(
    save: Make,
) -> None:
    _, folder = save("mistral", max_position_embeddings=32768)
    edit(folder / "config.json", sliding_window=...)

    assert open_checkpoint(folder).config.context_length == 4096


def test_tensors_come_in_the_model_s_order_one_at_a_time(save: Make) -> None:
    _, folder = save(shard="60KB", tie_word_embeddings=False)

    names = [name for name, _ in open_checkpoint(folder).tensors()]

    assert names[0] == "model.embed_tokens.weight"
    assert names[1:4] == [
        f"model.layers.0.{name}.weight"
        for name in ("input_layernorm", "self_attn.q_proj", "self_attn.k_proj")
    ]
    assert names[-2:] == ["model.norm.weight", "lm_head.weight"]
    assert len(names) == len(set(names)) == 21
