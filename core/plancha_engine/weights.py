"""From a checkpoint's parameters to the fewest matrices a forward pass can do with.

Q, K and V are one matrix, gate and up another. The weights of a norm scale the columns of the
matrix that follows it: W (x * g) = (W * g) x.
"""

from collections.abc import Iterable
from typing import Any, Generic

import attrs
import torch

from plancha_engine.backend import Backend, HeadNorms, Matrix
from plancha_engine.config import ModelConfig

LAST_OF_A_LAYER = "mlp.down_proj.weight"


@attrs.frozen(eq=False)
class Layer(Generic[Matrix]):
    """One decoder layer."""

    qkv: Matrix  # [(heads + 2 kv_heads) head_dim, hidden]
    head_norms: HeadNorms | None
    output: Matrix  # [hidden, heads head_dim]
    gate_up: Matrix  # [2 intermediate, hidden]
    down: Matrix  # [hidden, intermediate]


@attrs.frozen(eq=False)
class Weights(Generic[Matrix]):
    """Everything of the model but the embedding, which the backend holds."""

    layers: tuple[Layer[Matrix], ...]
    head: Matrix  # [usable vocabulary, hidden]


def prepare_weights(
    parameters: Iterable[tuple[str, torch.Tensor]],
    config: ModelConfig,
    backend: Backend[Any, Matrix],
    usable_vocabulary: int,
) -> Weights[Matrix]:
    """Hand the parameters, in the model's order, to `backend` and drop them one layer at a time."""
    layers: list[Layer[Matrix]] = []
    loose: dict[str, torch.Tensor] = {}
    embedding: torch.Tensor | None = None
    for name, tensor in parameters:
        if name == "model.embed_tokens.weight":
            embedding = tensor
            backend.set_embedding(tensor)
        elif name.startswith("model.layers."):
            loose[name.split(".", 3)[3]] = tensor
            if name.endswith(LAST_OF_A_LAYER):
                layers.append(_layer(loose, config, backend))
                loose = {}
        else:
            loose[name] = tensor
    head = embedding if config.tied_head else loose["lm_head.weight"]
    assert head is not None  # a checked checkpoint has one
    scaled = head[:usable_vocabulary] * loose["model.norm.weight"]
    return Weights(tuple(layers), backend.matrix(scaled, None))


def _layer(
    loose: dict[str, torch.Tensor], config: ModelConfig, backend: Backend[Any, Matrix]
) -> Layer[Matrix]:
    bias = _joined(loose, "bias") if config.qkv_bias else None
    head_norms = None
    if config.qk_norm:
        head_norms = HeadNorms(loose["self_attn.q_norm.weight"], loose["self_attn.k_norm.weight"])
    gate_up = torch.cat([loose["mlp.gate_proj.weight"], loose["mlp.up_proj.weight"]])
    return Layer(
        qkv=backend.matrix(_joined(loose, "weight") * loose["input_layernorm.weight"], bias),
        head_norms=head_norms,
        output=backend.matrix(loose["self_attn.o_proj.weight"], None),
        gate_up=backend.matrix(gate_up * loose["post_attention_layernorm.weight"], None),
        down=backend.matrix(loose["mlp.down_proj.weight"], None),
    )


def _joined(loose: dict[str, torch.Tensor], kind: str) -> torch.Tensor:
    return torch.cat([loose[f"self_attn.{part}_proj.{kind}"] for part in ("q", "k", "v")])
