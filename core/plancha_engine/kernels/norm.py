"""The scale of RMSNorm (Zhang & Sennrich 2019)."""

import numpy as np

from plancha_engine.arrays import Float32s
from plancha_engine.kernels.compiling import inlined, summing


@inlined
def inverse_rms(x: Float32s, epsilon: float) -> np.float32:
    """1 over the root of the mean square of `x` plus `epsilon`."""
    mean: np.float32 = _squares(x) / np.float32(x.size)
    scale: np.float32 = np.float32(1) / np.sqrt(mean + np.float32(epsilon))
    return scale


@summing
def _squares(x: Float32s) -> np.float32:
    total = np.float32(0)
    for i in range(x.size):
        total += x[i] * x[i]
    return total
