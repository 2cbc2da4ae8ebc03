"""The tensors a model is made of: names (Hugging Face's) and shapes, from its config alone."""

from collections.abc import Callable, Iterator, Mapping

import attrs
import torch

from plancha.contracts import LoadError
from plancha_engine.config import ModelConfig

Shape = tuple[int, ...]


@attrs.frozen
class StoredTensor:
    """One tensor of a file, not read yet. `read` may be called from any thread."""

    shape: Shape
    read: Callable[[], torch.Tensor]  # contiguous, on the CPU, in the dtype the file decodes to


@attrs.frozen
class OpenedModel:
    """What a file format's reader found, under Hugging Face's names, not yet checked."""

    config: ModelConfig
    stored: Mapping[str, StoredTensor]
    notes: tuple[str, ...] = ()


def parameter_shapes(config: ModelConfig) -> Iterator[tuple[str, Shape]]:
    """Every parameter of the model, in the order a forward pass meets them.

    Matrices are `[out, in]`. A tied head has no tensor of its own.
    """
    yield "model.embed_tokens.weight", (config.vocabulary, config.hidden)
    for layer in range(config.layers):
        for name, shape in _layer_shapes(config):
            yield f"model.layers.{layer}.{name}", shape
    yield "model.norm.weight", (config.hidden,)
    if not config.tied_head:
        yield "lm_head.weight", (config.vocabulary, config.hidden)


def _layer_shapes(config: ModelConfig) -> Iterator[tuple[str, Shape]]:
    hidden, intermediate = config.hidden, config.intermediate
    query_rows = config.heads * config.head_dim
    key_rows = config.kv_heads * config.head_dim
    yield "input_layernorm.weight", (hidden,)
    for name, rows in (("q_proj", query_rows), ("k_proj", key_rows), ("v_proj", key_rows)):
        yield f"self_attn.{name}.weight", (rows, hidden)
        if config.qkv_bias:
            yield f"self_attn.{name}.bias", (rows,)
    if config.qk_norm:
        yield "self_attn.q_norm.weight", (config.head_dim,)
        yield "self_attn.k_norm.weight", (config.head_dim,)
    yield "self_attn.o_proj.weight", (hidden, query_rows)
    yield "post_attention_layernorm.weight", (hidden,)
    yield "mlp.gate_proj.weight", (intermediate, hidden)
    yield "mlp.up_proj.weight", (intermediate, hidden)
    yield "mlp.down_proj.weight", (hidden, intermediate)


def check_parameters(
    config: ModelConfig, stored: Mapping[str, StoredTensor], source: str
) -> dict[str, StoredTensor]:
    """`stored`, in the model's order, once it is exactly what the model needs.

    Raises `LoadError` naming the first tensor that is missing, misshapen (with both shapes), or
    in the file but not in the model.
    """
    found: dict[str, StoredTensor] = {}
    for name, shape in parameter_shapes(config):
        tensor = stored.get(name)
        if tensor is None:
            raise LoadError(f"{source}: tensor {name} {list(shape)} is missing")
        if tensor.shape != shape:
            raise LoadError(
                f"{source}: tensor {name} has shape {list(tensor.shape)}, must be {list(shape)}"
            )
        found[name] = tensor
    if unused := [name for name in stored if name not in found]:
        more = f" (and {len(unused) - 1} more)" if len(unused) > 1 else ""
        shape = stored[unused[0]].shape
        raise LoadError(
            f"{source}: tensor {unused[0]} {list(shape)}{more} has no place"
            f" in a {config.architecture} model of {config.layers} layers"
        )
    return found
