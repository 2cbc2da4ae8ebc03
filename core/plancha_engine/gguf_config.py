"""A GGUF file's metadata, turned into a `ModelConfig`.

Key names: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. A key that asks for a
computation this engine does not do is refused by name.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType

from plancha.contracts import LoadError
from plancha_engine.config import Architecture, ModelConfig, RopeScaling
from plancha_engine.gguf_file import ArrayValue, GgufFile, Value

ARCHITECTURES: Mapping[str, Architecture] = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
ROPE_DIVISORS = "rope_freqs.weight"
"""Name of the tensor that holds Llama 3's scaling; no parameter of the model."""
_STOP_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


class _Metadata:
    """Metadata by key, each value checked for its type; `{arch}` is the file's architecture."""

    def __init__(self, path: Path, values: Mapping[str, Value]) -> None:
        self._path, self._values = path, values
        self.architecture = self.text("general.architecture")
        if self.architecture not in ARCHITECTURES:
            known = ", ".join(sorted(ARCHITECTURES))
            raise self.error(
                f"general.architecture is {self.architecture!r}, must be one of: {known}"
            )

    def error(self, message: str) -> LoadError:
        return LoadError(f"{self._path}: {message}")

    def text(self, key: str, default: str | None = None) -> str:
        value = self._find(key, default)
        if not isinstance(value, str):
            raise self.error(f"{self._full(key)} is {value!r}, must be a string")
        return value

    def integer(self, key: str, default: int | None = None) -> int:
        value = self._find(key, default)
        if type(value) is not int:
            raise self.error(f"{self._full(key)} is {value!r}, must be an integer")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._find(key, default)
        if type(value) not in (int, float):
            raise self.error(f"{self._full(key)} is {value!r}, must be a number")
        return float(value)  # type: ignore[arg-type]

    def length(self, key: str) -> int | None:
        """How many elements the array has, if it is there."""
        value = self._values.get(key)
        return value.length if isinstance(value, ArrayValue) else None

    def __contains__(self, key: str) -> bool:
        return self._full(key) in self._values

    def _full(self, key: str) -> str:
        return key.replace("{arch}", self.architecture) if "{arch}" in key else key

    def _find(self, key: str, default: Value | None) -> Value:
        value = self._values.get(self._full(key), default)
        if value is None:
            raise self.error(f"{self._full(key)} is missing")
        return value


def read_gguf_config(path: Path, file: GgufFile) -> ModelConfig:
    """Raises `LoadError` naming the key that is missing, ill-typed or asks for something else."""
    metadata = _Metadata(path, file.metadata)
    architecture = ARCHITECTURES[metadata.architecture]
    hidden = metadata.integer("{arch}.embedding_length")
    heads = metadata.integer("{arch}.attention.head_count")
    head_dim = metadata.integer("{arch}.attention.key_length", hidden // max(heads, 1))
    _refuse_unsupported(metadata, head_dim)
    return ModelConfig(
        architecture=architecture,
        layers=metadata.integer("{arch}.block_count"),
        hidden=hidden,
        heads=heads,
        kv_heads=metadata.integer("{arch}.attention.head_count_kv", heads),
        head_dim=head_dim,
        intermediate=metadata.integer("{arch}.feed_forward_length"),
        vocabulary=_vocabulary(metadata, file),
        context_length=metadata.integer("{arch}.context_length"),
        norm_epsilon=metadata.number("{arch}.attention.layer_norm_rms_epsilon"),
        rope_theta=metadata.number("{arch}.rope.freq_base", 10000.0),
        rope_scaling=_rope_scaling(metadata),
        rope_divisors=_rope_divisors(metadata, file),
        tied_head="output.weight" not in file.tensors,
        qkv_bias=architecture == "qwen2",
        qk_norm=architecture == "qwen3",
        sliding_window=metadata.integer("{arch}.attention.sliding_window", 0) or None,
        stop_ids=_stop_ids(metadata),
    )


def _refuse_unsupported(metadata: _Metadata, head_dim: int) -> None:
    for key in ("{arch}.attention.value_length", "{arch}.rope.dimension_count"):
        if (found := metadata.integer(key, head_dim)) != head_dim:
            name = key.replace("{arch}", metadata.architecture)
            raise metadata.error(f"{name} is {found}, must be the head's {head_dim}")
    if (parts := metadata.integer("split.count", 1)) > 1:
        raise metadata.error(f"split.count is {parts}: merge the parts into one file first")
    if experts := metadata.integer("{arch}.expert_count", 0):
        raise metadata.error(
            f"{metadata.architecture}.expert_count is {experts}: mixtures of experts"
            " are not supported"
        )


def _vocabulary(metadata: _Metadata, file: GgufFile) -> int:
    """The tokenizer's length binds the embedding's rows; a file without one is taken by them."""
    if (tokens := metadata.length("tokenizer.ggml.tokens")) is not None:
        return tokens
    embedding = file.tensors.get("token_embd.weight")
    return metadata.integer("{arch}.vocab_size", embedding.shape[0] if embedding else None)


def _rope_scaling(metadata: _Metadata) -> RopeScaling | None:
    kind = metadata.text("{arch}.rope.scaling.type", "")
    if not kind and "{arch}.rope.scale_linear" in metadata:  # the key before scaling had types
        factor = metadata.number("{arch}.rope.scale_linear")
        return RopeScaling(kind="linear", factor=factor) if factor != 1.0 else None
    if kind in ("", "none"):
        return None
    if kind != "linear":
        raise metadata.error(
            f"{metadata.architecture}.rope.scaling.type is {kind!r}, must be none or linear"
        )
    return RopeScaling(kind="linear", factor=metadata.number("{arch}.rope.scaling.factor"))


def _rope_divisors(metadata: _Metadata, file: GgufFile) -> tuple[float, ...]:
    """Llama 3's scaling, which converters write as a tensor instead of metadata."""
    tensor = file.tensors.get(ROPE_DIVISORS)
    if tensor is None:
        return ()
    if tensor.kind is not GGMLQuantizationType.F32 or len(tensor.shape) != 1:
        raise metadata.error(
            f"tensor {ROPE_DIVISORS} is {tensor.kind.name} {list(tensor.shape)},"
            " must be F32 with one dimension"
        )
    return tuple(tensor.data.view(np.float32).ravel().tolist())


def _stop_ids(metadata: _Metadata) -> tuple[int, ...]:
    keys = [f"tokenizer.ggml.{name}" for name in _STOP_KEYS]
    return tuple(dict.fromkeys(metadata.integer(key) for key in keys if key in metadata))
