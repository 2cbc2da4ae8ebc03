"""e^x without branches, so that many can be computed at once."""

from typing import Any

import numpy as np

from plancha_engine.kernels.compiling import inlined
from plancha_engine.kernels.vectors import floor, power_of_two, zero_below

HIGHEST = np.float32(88)
"""As far as `exp` goes."""

_LOG2_E = np.float32(1.4426950408889634)
_HALF = np.float32(0.5)
_ONE = np.float32(1)
_LN2_HIGH = np.float32(0.693359375)
_LN2_LOW = np.float32(-2.12194440e-4)
_LOWEST = np.float32(-87.33654)  # below, e^x is no normal float32
_P0 = np.float32(1.9875691500e-4)
_P1 = np.float32(1.3981999507e-3)
_P2 = np.float32(8.3334519073e-3)
_P3 = np.float32(4.1665795894e-2)
_P4 = np.float32(1.6666665459e-1)
_P5 = np.float32(5.0000001201e-1)


@inlined
def exp(x: Any) -> Any:
    """Of a float32 or a vector up to `HIGHEST`, to 3 units in the last place.

    0 where that is no normal number. Cephes' reduction of the range and polynomial (Moshier).
    NaN stays NaN.
    """
    n = floor(x * _LOG2_E + _HALF)
    r = x - n * _LN2_HIGH - n * _LN2_LOW
    p = ((((r * _P0 + _P1) * r + _P2) * r + _P3) * r + _P4) * r + _P5
    return zero_below(x, _LOWEST, (p * r * r + r + _ONE) * power_of_two(n))
