"""Small functions in forms that LLVM turns into vector instructions."""

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from plancha_engine.kernels.compiling import inlined

_LOG2_E = np.float32(1.4426950408889634)
_LN2_HIGH = np.float32(0.693359375)
_LN2_LOW = np.float32(-2.12194440e-4)
_LOWEST = np.float32(-87.33654)  # below, e^x is no normal float32


@intrinsic
def _float_of_bits(typing: Any, bits: Any) -> Any:
    """The float32 with the bits of an int32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@inlined
def exp(x: np.float32) -> np.float32:
    """e^x in float32 for x up to 88, to about 2 units in the last place; 0 below the normal range.

    Cephes' split of the range and polynomial (Moshier), without branches.
    """
    n = np.floor(x * _LOG2_E + np.float32(0.5))
    r = x - n * _LN2_HIGH - n * _LN2_LOW
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    p = p * r * r + r + np.float32(1)
    power: np.float32 = _float_of_bits((np.int32(n) + np.int32(127)) << np.int32(23))  # type: ignore[call-arg]
    return np.float32(0) if x < _LOWEST else p * power
