"""What happens to activations between the products: embedding, norms, SwiGLU."""

import numpy as np
from numba import prange

from plancha.messages import Int32s
from plancha_engine.arrays import Float32s
from plancha_engine.kernels.compiling import inlined, kernel
from plancha_engine.kernels.exponential import HIGHEST, exp
from plancha_engine.kernels.norm import inverse_rms

_FEW_ROWS = 4
"""Up to here one thread is done before others have woken up."""


@kernel("void(f4[:,::1],i4[::1],f4[:,::1])")
def embed(embedding: Float32s, tokens: Int32s, out: Float32s) -> None:
    """`out[t] = embedding[tokens[t]]`."""
    for t in range(tokens.size):
        out[t] = embedding[tokens[t]]


@kernel("void(f4[:,::1],f4,f4[:,::1])", parallel=True)
def normalise(x: Float32s, epsilon: float, out: Float32s) -> None:
    """Each row of `out` is that of `x` over its root mean square."""
    if x.shape[0] <= _FEW_ROWS:
        for row in range(x.shape[0]):
            _normalise_row(x[row], epsilon, out[row])
    else:
        for row in prange(x.shape[0]):
            _normalise_row(x[row], epsilon, out[row])


@kernel("void(f4[:,::1],f4[:,::1],f4,f4[:,::1])", parallel=True)
def add_and_normalise(hidden: Float32s, change: Float32s, epsilon: float, out: Float32s) -> None:
    """`hidden += change`, then `normalise`. `change` may have columns beyond those of `hidden`."""
    if hidden.shape[0] <= _FEW_ROWS:
        for row in range(hidden.shape[0]):
            _add(hidden[row], change[row])
            _normalise_row(hidden[row], epsilon, out[row])
    else:
        for row in prange(hidden.shape[0]):
            _add(hidden[row], change[row])
            _normalise_row(hidden[row], epsilon, out[row])


@kernel("void(f4[:,::1],f4[:,::1])", parallel=True)
def gate(gate_up: Float32s, out: Float32s) -> None:
    """`out[r] = SiLU(gate[r]) * up[r]`; a row of `gate_up` is gate, then up."""
    if out.shape[0] <= _FEW_ROWS:
        for row in range(out.shape[0]):
            _gate_row(gate_up[row], out[row])
    else:
        for row in prange(out.shape[0]):
            _gate_row(gate_up[row], out[row])


@inlined
def _add(hidden: Float32s, change: Float32s) -> None:
    for i in range(hidden.size):
        hidden[i] += change[i]


@inlined
def _normalise_row(x: Float32s, epsilon: float, out: Float32s) -> None:
    scale = inverse_rms(x, epsilon)
    for i in range(x.size):
        out[i] = x[i] * scale


@inlined
def _gate_row(gate_up: Float32s, out: Float32s) -> None:
    for i in range(out.size):
        x = gate_up[i]
        sigmoid = np.float32(1) / (np.float32(1) + exp(min(-x, HIGHEST)))
        out[i] = x * sigmoid * gate_up[out.size + i]
