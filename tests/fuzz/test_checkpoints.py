"""Damaged safetensors folders: they load, or are refused by name, in bounded time and memory.

GGUF has the same in tests/engine/test_checkpoint_gguf_damage.py.
"""

import json
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from plancha.contracts import LoadError
from plancha_engine.checkpoint import open_checkpoint

pytestmark = pytest.mark.fuzz
LONG = settings.get_current_profile_name() == "fuzz"
MOST_BYTES = 8_000_000

quick = settings(
    max_examples=1000 if LONG else 150,
    derandomize=not LONG,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 4,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "eos_token_id": 3,
}
LAYER = "model.layers.0."
SHAPES = {
    "model.embed_tokens.weight": (4, 8),
    "model.norm.weight": (8,),
    LAYER + "input_layernorm.weight": (8,),
    LAYER + "post_attention_layernorm.weight": (8,),
    LAYER + "self_attn.q_proj.weight": (8, 8),
    LAYER + "self_attn.k_proj.weight": (4, 8),
    LAYER + "self_attn.v_proj.weight": (4, 8),
    LAYER + "self_attn.o_proj.weight": (8, 8),
    LAYER + "mlp.gate_proj.weight": (8, 8),
    LAYER + "mlp.up_proj.weight": (8, 8),
    LAYER + "mlp.down_proj.weight": (8, 8),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A valid tiny model."""
    save_file({name: torch.zeros(shape) for name, shape in SHAPES.items()}, weights(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert len(open_checkpoint(tmp_path).load()) == len(SHAPES)
    return tmp_path


def weights(folder: Path) -> Path:
    return folder / "model.safetensors"


def assert_loads_or_refuses(folder: Path) -> None:
    tracemalloc.start()
    try:
        open_checkpoint(folder).load()
    except LoadError as error:
        assert str(folder) in str(error)
        assert len(str(error)) < 2000
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < MOST_BYTES


def test_weights_cut_anywhere_are_refused(folder: Path) -> None:
    whole = weights(folder).read_bytes()
    for length in range(0, len(whole), 1 if LONG else 13):
        weights(folder).write_bytes(whole[:length])
        with pytest.raises(LoadError):
            open_checkpoint(folder)


@quick
@given(data=st.data())
def test_a_header_changed_anywhere_loads_or_is_refused(folder: Path, data: st.DataObject) -> None:
    whole = bytearray(weights(folder).read_bytes())
    content = whole.copy()
    end = 8 + struct.unpack("<Q", whole[:8])[0]
    for place in data.draw(st.lists(st.integers(0, end), min_size=1, max_size=4)):
        match data.draw(st.sampled_from(["bit", "byte", "size", "insert", "delete"])):
            case "bit":
                content[place] ^= 1 << data.draw(st.integers(0, 7))
            case "byte":
                content[place] = data.draw(st.sampled_from(b'\0"{}[],:0919-e\\\xff'))
            case "size":
                sizes = st.sampled_from([0, 1, 2**31, 2**32, 2**40, 2**63, 2**64 - 1, end * 2])
                content[:8] = struct.pack("<Q", data.draw(sizes))
            case "insert":
                content[place:place] = data.draw(st.binary(min_size=1, max_size=16))
            case "delete":
                del content[place : place + data.draw(st.integers(1, 16))]
    weights(folder).write_bytes(content)
    try:
        assert_loads_or_refuses(folder)
    finally:
        weights(folder).write_bytes(whole)


NUMBERS = st.sampled_from([0, -1, 1, 7, 2**31, 2**32, 2**62, 2**63, 10**30, 1.5, -0.0, 1e308])
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, "", "8", [], [[]], {}, {"rope_type": 5}, {"a": {"b": {}}}, "x" * 5000, [3] * 5000]
)


@quick
@given(keys=st.dictionaries(st.sampled_from(sorted(CONFIG)), NUMBERS | ODD, min_size=1, max_size=4))
def test_a_config_of_odd_values_loads_or_is_refused(folder: Path, keys: dict[str, Any]) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG | keys))
    assert_loads_or_refuses(folder)


@quick
@given(content=st.binary(max_size=60) | st.sampled_from([b"[" * 50_000, b"{}", b"\xff\xfe{\0}\0"]))
def test_json_files_of_any_bytes_are_refused(folder: Path, content: bytes) -> None:
    for name in ("config.json", "generation_config.json", "model.safetensors.index.json"):
        file = folder / name
        before = file.read_bytes() if file.exists() else None
        file.write_bytes(content)
        assert_loads_or_refuses(folder)
        if before is None:
            file.unlink()
        else:
            file.write_bytes(before)


@quick
@given(
    shards=st.dictionaries(
        st.sampled_from([*SHAPES, "x"]),
        st.sampled_from(["model.safetensors", "../x.safetensors", "/etc/passwd", "a/b", "", 5]),
        max_size=4,
    )
)
def test_an_index_never_points_out_of_its_folder(folder: Path, shards: dict[str, Any]) -> None:
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": shards}))
    assert_loads_or_refuses(folder)
