"""What a checkpoint says of its model, whichever file format it came in."""

from typing import Literal

import attrs

Architecture = Literal["llama", "mistral", "qwen2", "qwen3"]


@attrs.frozen(kw_only=True)
class RopeScaling:
    """Scaled rotary positions; `linear` uses `factor` alone, `llama3` all four."""

    kind: Literal["linear", "llama3"]
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8192


@attrs.frozen(kw_only=True)
class ModelConfig:
    """Hyperparameters of a decoder. Weight names elsewhere are Hugging Face's."""

    architecture: Architecture
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int  # rows of the embedding, padding included
    context_length: int
    norm_epsilon: float
    rope_theta: float
    rope_scaling: RopeScaling | None = None
    tied_head: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False
    sliding_window: int | None = None
    stop_ids: tuple[int, ...] = ()
