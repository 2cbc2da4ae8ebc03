"""Matrix products of activations with packed weights, from one row to thousands."""

import numpy as np
import torch
from numba import prange

from plancha_engine.arrays import Float32s
from plancha_engine.kernels.compiling import inlined, kernel
from plancha_engine.kernels.tiles import Rows, multiply_16

PANEL = 16
"""Rows of a weight matrix that are stored interleaved, as columns of a tile."""

_ROW_BLOCK = 96
"""Rows of x that stay in the cache while the weights pass by."""


def pack(weight: torch.Tensor) -> Float32s:
    """`[out, in]` as `[panels, in, 16]`; rows that are missing in the last panel are zero.

    A step of the inner loop then reads 16 weights that lie side by side, and a whole product
    reads the weights from front to back.
    """
    rows, columns = weight.shape
    panels = -(-rows // PANEL)
    packed = np.zeros((panels, columns, PANEL), np.float32)  # in huge pages, unlike torch's
    whole = rows // PANEL
    by_panel = torch.from_numpy(packed)
    by_panel[:whole] = weight[: whole * PANEL].view(whole, PANEL, columns).transpose(1, 2)
    if whole < panels:
        by_panel[whole, :, : rows - whole * PANEL] = weight[whole * PANEL :].T
    return packed


@kernel("void(f4[:,::1],f4[:,:,::1],f4[::1],f4[:,::1],i8)", parallel=True)
def product(x: Float32s, weight: Float32s, bias: Float32s, out: Float32s, threads: int) -> None:
    """`out[r, c] = bias[c] + sum over k of x[r, k] weight[c // 16, k, c % 16]`.

    x `[rows, at least in]`, bias `[16 panels]`, out `[rows, at least 16 panels]`.
    """
    rows, panels = x.shape[0], weight.shape[0]
    for thread in prange(threads):
        first, last = panels * thread // threads, panels * (thread + 1) // threads
        for begin in range(0, rows, _ROW_BLOCK):
            end = min(rows, begin + _ROW_BLOCK)
            for panel in range(first, last):
                _panel(x, weight, bias, out, panel, begin, end)


@inlined
def _panel(
    x: Float32s,
    weight: Float32s,
    bias: Float32s,
    out: Float32s,
    panel: int,
    begin: int,
    end: int,
) -> None:
    at, size = weight[panel].ctypes.data, 4 * PANEL * weight.shape[1]
    busy = end - begin > 2  # with less to compute, the CPU's own prefetching is ahead of ours
    multiply_16(
        end - begin,
        Rows(x[begin:].ctypes.data, x.shape[1]),
        Rows(at, PANEL),
        weight.shape[1],
        Rows(bias[panel * PANEL :].ctypes.data, 0),
        Rows(out[begin:, panel * PANEL :].ctypes.data, out.shape[1]),
        at + size if busy else at,
    )
