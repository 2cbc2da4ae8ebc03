"""A GGUF file as a model: metadata to config, tensor names to Hugging Face's, blocks to floats.

Key names: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from plancha.contracts import LoadError
from plancha_engine.config import Architecture, ModelConfig, RopeScaling
from plancha_engine.gguf_file import ArrayValue, Bytes, GgufFile, GgufTensor, Value, read_gguf
from plancha_engine.parameters import OpenedModel, StoredTensor

ARCHITECTURES: Mapping[str, Architecture] = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}

_TENSORS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_ROPE_DIVISORS = "rope_freqs.weight"
_STOP_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
_DECODED_AT_ONCE = 1 << 19  # values: bounds the temporaries; from here on size costs no time


def open_gguf(path: Path) -> OpenedModel:
    """Read the header; tensors are decoded when they are asked for.

    Raises `LoadError` for a malformed file, an unknown architecture, or metadata that asks for
    something this engine does not compute.
    """
    file = read_gguf(path)
    metadata = _Metadata(path, file.metadata)
    config = _config(metadata, file)
    stored: dict[str, StoredTensor] = {}
    for name, tensor in file.tensors.items():
        if name == _ROPE_DIVISORS:
            continue
        check_decodable(path, tensor)
        renamed = hugging_face_name(name)
        heads = _interleaved_heads(config, renamed) if metadata.architecture == "llama" else None
        stored[renamed] = StoredTensor(tensor.shape, partial(decode, tensor, heads))
    if len(stored) + (_ROPE_DIVISORS in file.tensors) != len(file.tensors):
        raise LoadError(f"{path}: two tensors stand for the same parameter")
    return OpenedModel(config, stored)


def hugging_face_name(name: str) -> str:
    """`blk.3.attn_q.weight` is `model.layers.3.self_attn.q_proj.weight`; unknown names stay."""
    stem, _, suffix = name.rpartition(".")
    if stem in _TENSORS:
        return f"{_TENSORS[stem]}.{suffix}"
    match stem.split("."):
        case ["blk", layer, part] if part in _LAYER_TENSORS:
            return f"model.layers.{layer}.{_LAYER_TENSORS[part]}.{suffix}"
    return name


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
            raise self.error(f"{key} is {value!r}, must be a string")
        return value

    def integer(self, key: str, default: int | None = None) -> int:
        value = self._find(key, default)
        if type(value) is not int:
            raise self.error(f"{key} is {value!r}, must be an integer")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._find(key, default)
        if type(value) not in (int, float):
            raise self.error(f"{key} is {value!r}, must be a number")
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


def _config(metadata: _Metadata, file: GgufFile) -> ModelConfig:
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
    tensor = file.tensors.get(_ROPE_DIVISORS)
    if tensor is None:
        return ()
    if tensor.kind is not GGMLQuantizationType.F32 or len(tensor.shape) != 1:
        raise metadata.error(
            f"tensor {_ROPE_DIVISORS} is {tensor.kind.name} {list(tensor.shape)},"
            " must be F32 with one dimension"
        )
    return tuple(tensor.data.view(np.float32).ravel().tolist())


def _stop_ids(metadata: _Metadata) -> tuple[int, ...]:
    keys = [f"tokenizer.ggml.{name}" for name in _STOP_KEYS]
    return tuple(dict.fromkeys(metadata.integer(key) for key in keys if key in metadata))


def check_decodable(path: Path, tensor: GgufTensor) -> None:
    """Raises `LoadError` for a type the `gguf` package cannot turn into floats."""
    try:
        dequantize(np.zeros((1, GGML_QUANT_SIZES[tensor.kind][1]), np.uint8), tensor.kind)
    except NotImplementedError as error:
        raise LoadError(
            f"{path}: tensor {tensor.name} is quantised as {tensor.kind.name},"
            " which cannot be decoded here"
        ) from error


def _interleaved_heads(config: ModelConfig, name: str) -> int | None:
    if name.endswith(".q_proj.weight"):
        return config.heads
    return config.kv_heads if name.endswith(".k_proj.weight") else None


def decode(tensor: GgufTensor, interleaved_heads: int | None = None) -> torch.Tensor:
    """The tensor's values, float32 in its shape.

    `interleaved_heads`: llama's query and key rows are stored with the two halves of every head
    interleaved, for a rotation of neighbouring pairs; they come back in Hugging Face's order,
    which pairs row i of a head with row i + head_dim / 2.
    """
    data = tensor.data
    if interleaved_heads is not None:
        order = np.arange(len(data)).reshape(interleaved_heads, -1, 2).swapaxes(1, 2).ravel()
        data = data[order]
    return torch.from_numpy(_dequantized(data.reshape(-1), tensor.kind)).view(tensor.shape)


def _dequantized(stored: Bytes, kind: GGMLQuantizationType) -> npt.NDArray[np.float32]:
    block_values, block_bytes = GGML_QUANT_SIZES[kind]
    blocks = stored.reshape(-1, block_bytes)
    values = np.empty((len(blocks), block_values), np.float32)
    step = max(_DECODED_AT_ONCE // block_values, 1)
    with np.errstate(all="ignore"):  # damaged scales give NaN, which the checkpoint looks for
        for start in range(0, len(blocks), step):
            part = blocks[start : start + step].reshape(1, -1)
            values[start : start + step] = dequantize(part, kind).reshape(-1, block_values)
    return values.ravel()
