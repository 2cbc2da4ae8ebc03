"""Rotary positions: the angle a pair of a head's dimensions turns at each position.

RoFormer, https://arxiv.org/abs/2104.09864. The two halves of a head are the pairs' two sides
("rotate half"), as in Hugging Face's checkpoints.
"""

import math

import torch

from plancha_engine.config import ModelConfig, RopeScaling


def inverse_frequencies(config: ModelConfig) -> torch.Tensor:
    """Radians a position, float32 `[head_dim / 2]`; the angle at position p is p times this.

    Computed in float32 throughout, since reference implementations do and the angle at a late
    position multiplies any difference.
    """
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    frequencies = 1.0 / config.rope_theta**exponents
    if config.rope_divisors:
        frequencies = frequencies / torch.tensor(config.rope_divisors, dtype=torch.float32)
    scaling = config.rope_scaling
    if scaling is None:
        return frequencies
    if scaling.kind == "linear":
        return frequencies / scaling.factor
    return _llama3(frequencies, scaling)


def cos_sin(frequencies: torch.Tensor, positions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Tables for positions 0 to `positions` - 1: two float32 `[positions, head_dim / 2]`."""
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), frequencies)
    return angles.cos(), angles.sin()


def _llama3(frequencies: torch.Tensor, scaling: RopeScaling) -> torch.Tensor:
    """Long wavelengths stretched by `factor`, short ones kept, those between blended.

    Llama 3.1, https://arxiv.org/abs/2407.21783; the bands are in wavelengths per original context.
    """
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    wavelengths = 2 * math.pi / frequencies
    stretched = frequencies / scaling.factor
    blend = (scaling.original_context / wavelengths - low) / (high - low)
    blended = (1 - blend) * frequencies / scaling.factor + blend * frequencies
    is_long = wavelengths > scaling.original_context / low
    is_short = wavelengths < scaling.original_context / high
    return torch.where(is_long, stretched, torch.where(is_short, frequencies, blended))
