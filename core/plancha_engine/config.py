"""What a checkpoint says of its model, whichever file format it came in."""

import math
from typing import Literal

import attrs

from plancha.contracts import LoadError

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
    rope_divisors: tuple[float, ...] = ()  # one a frequency, as GGUF stores `llama3`; () is none
    tied_head: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False
    sliding_window: int | None = None
    stop_ids: tuple[int, ...] = ()


def check_config(config: ModelConfig, source: str) -> None:
    """Refuse numbers no decoder can have, before anything is sized by them.

    Raises `LoadError` that starts with `source` (a path) and names the number.
    """
    for field in ("layers", "hidden", "heads", "kv_heads", "head_dim", "intermediate"):
        _require(getattr(config, field) >= 1, source, config, field, "at least 1")
    for field in ("vocabulary", "context_length"):
        _require(getattr(config, field) >= 1, source, config, field, "at least 1")
    for field in ("norm_epsilon", "rope_theta"):
        value = getattr(config, field)
        _require(math.isfinite(value) and value > 0, source, config, field, "positive")
    divides = config.heads % config.kv_heads == 0
    _require(divides, source, config, "kv_heads", f"a divisor of heads = {config.heads}")
    _require(config.head_dim % 2 == 0, source, config, "head_dim", "even")
    if config.rope_scaling is not None:
        _check_scaling(config.rope_scaling, source)
    if config.rope_divisors:
        _check_divisors(config, source)
    if wrong := [token for token in config.stop_ids if not 0 <= token < config.vocabulary]:
        raise LoadError(
            f"{source}: end-of-sequence id {wrong[0]} is outside the vocabulary"
            f" (0 to {config.vocabulary - 1})"
        )


def _require(holds: bool, source: str, config: ModelConfig, field: str, right: str) -> None:
    if not holds:
        raise LoadError(f"{source}: {field} is {getattr(config, field)}, must be {right}")


def _check_scaling(scaling: RopeScaling, source: str) -> None:
    for field in ("factor", "low_freq_factor", "high_freq_factor", "original_context"):
        value = getattr(scaling, field)
        if not (math.isfinite(value) and value > 0):
            raise LoadError(f"{source}: rope scaling {field} is {value}, must be positive")
    if scaling.kind == "llama3" and scaling.high_freq_factor <= scaling.low_freq_factor:
        raise LoadError(
            f"{source}: rope scaling high_freq_factor is {scaling.high_freq_factor},"
            f" must be above low_freq_factor = {scaling.low_freq_factor}"
        )


def _check_divisors(config: ModelConfig, source: str) -> None:
    if len(config.rope_divisors) != config.head_dim // 2:
        raise LoadError(
            f"{source}: {len(config.rope_divisors)} rope frequency divisors,"
            f" must be head_dim / 2 = {config.head_dim // 2}"
        )
    for divisor in config.rope_divisors:
        if not (math.isfinite(divisor) and divisor > 0):
            raise LoadError(f"{source}: rope frequency divisor {divisor}, must be positive")
