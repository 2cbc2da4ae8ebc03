"""A GGUF file as a model: tensor names to Hugging Face's, quantised blocks to floats."""

from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from plancha.contracts import LoadError
from plancha_engine.config import ModelConfig
from plancha_engine.gguf_config import ROPE_DIVISORS, read_gguf_config
from plancha_engine.gguf_file import Bytes, GgufTensor, read_gguf
from plancha_engine.parameters import OpenedModel, StoredTensor

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
_DECODED_AT_ONCE = 1 << 19  # values: bounds the temporaries; from here on size costs no time


def open_gguf(path: Path) -> OpenedModel:
    """Read the header; tensors are decoded when they are asked for.

    Raises `LoadError` for a malformed file, an unknown architecture, or metadata that asks for
    something this engine does not compute.
    """
    file = read_gguf(path)
    config = read_gguf_config(path, file)
    stored: dict[str, StoredTensor] = {}
    for name, tensor in file.tensors.items():
        if name == ROPE_DIVISORS:
            continue
        check_decodable(path, tensor)
        renamed = hugging_face_name(name)
        heads = _interleaved_heads(config, renamed)
        stored[renamed] = StoredTensor(tensor.shape, partial(decode, tensor, heads))
    if len(stored) + (ROPE_DIVISORS in file.tensors) != len(file.tensors):
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
    if config.architecture != "llama":
        return None
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
