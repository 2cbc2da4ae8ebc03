"""Counter-based random numbers: Philox4x32-10 (Salmon et al., SC 2011)."""

import numpy as np

from plancha_engine.kernels.compiling import inlined

_LOW = np.uint64(0xFFFFFFFF)
_WORD = np.uint64(32)
_MULTIPLY_0, _MULTIPLY_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL_0, _WEYL_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)


@inlined
def philox(
    c0: np.uint64, c1: np.uint64, c2: np.uint64, c3: np.uint64, k0: np.uint64, k1: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """Four 32-bit words from a counter of four and a key of two, each held in a uint64."""
    for _ in range(10):
        product_0, product_1 = _MULTIPLY_0 * c0, _MULTIPLY_1 * c2
        c0, c1, c2, c3 = (
            (product_1 >> _WORD) ^ c1 ^ k0,
            product_1 & _LOW,
            (product_0 >> _WORD) ^ c3 ^ k1,
            product_0 & _LOW,
        )
        k0, k1 = (k0 + _WEYL_0) & _LOW, (k1 + _WEYL_1) & _LOW
    return c0, c1, c2, c3


@inlined
def uniform(seed: np.uint64, index: np.uint64) -> float:
    """A number in [0, 1) of 53 random bits, fixed by `seed` and `index` alone."""
    zero = np.uint64(0)
    high, low, _, _ = philox(index & _LOW, index >> _WORD, zero, zero, seed & _LOW, seed >> _WORD)
    bits = ((high >> np.uint64(5)) << np.uint64(26)) | (low >> np.uint64(6))
    return float(bits) * 2.0**-53
