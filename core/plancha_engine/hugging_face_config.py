"""config.json, as `transformers` writes it, turned into a `ModelConfig`.

Absent keys mean what they mean to `transformers`. A key that asks for a computation this engine
does not do is refused by name, never passed over.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import orjson

from plancha.contracts import LoadError
from plancha_engine.config import Architecture, ModelConfig, RopeScaling

ARCHITECTURES: Mapping[str, Architecture] = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
# What other values would change, while only these are computed.
_ONLY_VALUES: Mapping[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
    "partial_rotary_factor": (1, None),
    "quantization_config": (None,),
    "pretraining_tp": (1, None),
}
SHOWN_CHARACTERS = 200
_MISTRAL_WINDOW = 4096  # what transformers assumes of a Mistral whose config has no such key
_QWEN3_HEAD_DIM = 128


def read_json(path: Path) -> dict[str, Any]:
    """Raises `LoadError` when the file is missing or is not one JSON object."""
    try:
        value = orjson.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise LoadError(f"{path} is missing; is the download complete?") from error
    except orjson.JSONDecodeError as error:
        raise LoadError(f"{path}: not JSON ({error}); is the download complete?") from error
    if not isinstance(value, dict):
        raise LoadError(f"{path}: must hold a JSON object")
    return value


def read_config(folder: Path) -> ModelConfig:
    """The folder's config.json and generation_config.json. Raises `LoadError` naming the key."""
    keys = _Keys(folder / "config.json", read_json(folder / "config.json"))
    architecture = _architecture(keys)
    for key, right in _ONLY_VALUES.items():
        if key in keys.values and keys.values[key] not in right:
            raise keys.error(key, f"{right[0]!r}: nothing else is supported")
    hidden, heads = keys.integer("hidden_size"), keys.integer("num_attention_heads")
    theta, scaling = _rope(keys)
    return ModelConfig(
        architecture=architecture,
        layers=keys.integer("num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=keys.integer("num_key_value_heads", heads),
        head_dim=keys.integer(
            "head_dim", _QWEN3_HEAD_DIM if architecture == "qwen3" else hidden // max(heads, 1)
        ),
        intermediate=keys.integer("intermediate_size"),
        vocabulary=keys.integer("vocab_size"),
        context_length=keys.integer("max_position_embeddings"),
        norm_epsilon=keys.number("rms_norm_eps", 1e-6),
        rope_theta=theta,
        rope_scaling=scaling,
        tied_head=keys.flag("tie_word_embeddings"),
        qkv_bias=architecture == "qwen2",
        qk_norm=architecture == "qwen3",
        sliding_window=_sliding_window(keys, architecture),
        stop_ids=_stop_ids(folder, keys),
    )


@attrs.frozen
class _Keys:
    """One JSON object of a file; each value is checked for its type when it is asked for.

    `null` counts as absent.
    """

    path: Path
    values: Mapping[str, Any]
    inside: str = ""  # the key this object is the value of

    def error(self, key: str, right: str) -> LoadError:
        name = f"{self.inside}.{key}" if self.inside else key
        if key not in self.values:
            return LoadError(f"{self.path}: {name} is missing, must be {right}")
        value = repr(self.values[key])
        value = value if len(value) <= SHOWN_CHARACTERS else f"{value[:SHOWN_CHARACTERS]}…"
        return LoadError(f"{self.path}: {name} is {value}, must be {right}")

    def integer(self, key: str, default: int | None = None) -> int:
        value = self._find(key, default)
        if type(value) is not int:
            raise self.error(key, "an integer")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._find(key, default)
        if type(value) not in (int, float):
            raise self.error(key, "a number")
        return float(value)

    def flag(self, key: str) -> bool:
        value = self._find(key, False)
        if type(value) is not bool:
            raise self.error(key, "true or false")
        return value

    def table(self, key: str) -> "_Keys | None":
        value = self._find(key, None)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error(key, "an object")
        return _Keys(self.path, value, key)

    def _find(self, key: str, default: Any) -> Any:
        value = self.values.get(key)
        return default if value is None else value


def _architecture(keys: _Keys) -> Architecture:
    match keys.values.get("architectures"):
        case [str(name)] if name in ARCHITECTURES:
            return ARCHITECTURES[name]
    raise keys.error("architectures", f"one of: {', '.join(ARCHITECTURES)}")


def _rope(keys: _Keys) -> tuple[float, RopeScaling | None]:
    """Base and scaling: `rope_parameters` since transformers 5, `rope_scaling` before."""
    theta = keys.number("rope_theta", 10000.0)
    table = keys.table("rope_parameters") or keys.table("rope_scaling")
    if table is None:
        return theta, None
    for name, value in table.values.items():
        if isinstance(value, dict):
            raise table.error(name, "one value for all layers: nothing else is supported")
    theta = table.number("rope_theta", theta)
    if table.values.get("partial_rotary_factor") not in (1, None):
        raise table.error("partial_rotary_factor", "1: nothing else is supported")
    key = "type" if table.values.get("rope_type") is None else "rope_type"
    match table.values.get(key, "default"):
        case "default":
            return theta, None
        case "linear":
            return theta, RopeScaling(kind="linear", factor=table.number("factor"))
        case "llama3":
            return theta, RopeScaling(
                kind="llama3",
                factor=table.number("factor"),
                low_freq_factor=table.number("low_freq_factor"),
                high_freq_factor=table.number("high_freq_factor"),
                original_context=table.integer("original_max_position_embeddings"),
            )
    raise table.error(key, "default, linear or llama3: nothing else is supported")


def _sliding_window(keys: _Keys, architecture: Architecture) -> int | None:
    if architecture == "llama":
        return None
    if architecture == "mistral" and "sliding_window" not in keys.values:
        return _MISTRAL_WINDOW
    if architecture in ("qwen2", "qwen3") and not keys.flag("use_sliding_window"):
        return None
    window = keys.integer("sliding_window", 0)
    if window < 0:
        raise keys.error("sliding_window", "null or at least 1")
    return window or None


def _stop_ids(folder: Path, keys: _Keys) -> tuple[int, ...]:
    """generation_config.json is what generation goes by; config.json speaks where it is silent."""
    generation = folder / "generation_config.json"
    sources = [_Keys(generation, read_json(generation))] if generation.exists() else []
    for source in (*sources, keys):
        match source.values.get("eos_token_id"):
            case None:
                continue
            case int(token) if type(token) is int:
                return (token,)
            case list(tokens) if all(type(token) is int for token in tokens):
                return tuple(dict.fromkeys(tokens))
        raise source.error("eos_token_id", "an integer or a list of integers")
    return ()
