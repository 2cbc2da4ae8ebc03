"""Whole KV blocks on the move: within the pool, out to host memory, and back."""

import time

import numpy as np

from plancha.plans import Moves
from plancha_engine.arrays import Float32s

Pools = tuple[Float32s, ...]
"""Every array of a KV pool, each `[layers, blocks, …]`."""


class HostPool:
    """Room for `host_blocks` blocks beside the device's; it outlives the device's pool."""

    def __init__(self, pools: Pools, host_blocks: int) -> None:
        self.host_blocks = host_blocks
        self._host: Pools = tuple(
            np.empty((pool.shape[0], host_blocks, *pool.shape[2:]), pool.dtype) for pool in pools
        )

    def move(self, pools: Pools, moves: Moves) -> None:
        """The copies of one plan, in the order that `Moves` says."""
        for pool, host in zip(pools, self._host, strict=True):
            if moves.out_blocks.size:
                host[:, moves.out_hosts] = pool[:, moves.out_blocks]
            if moves.copied_from.size:
                pool[:, moves.copied_to] = pool[:, moves.copied_from]
            if moves.in_blocks.size:
                pool[:, moves.in_blocks] = host[:, moves.in_hosts]

    def block_copy_s(self, pools: Pools) -> float:
        """Seconds to copy one block out or back, measured on a few; 0 without host blocks.

        Overwrites the first blocks of both pools.
        """
        blocks = np.arange(min(8, self.host_blocks, pools[0].shape[1]), dtype=np.int32)
        if blocks.size == 0:
            return 0.0
        none = np.empty(0, np.int32)
        moves = Moves(blocks, blocks, none, none, blocks, blocks)
        self.move(pools, moves)  # the first touch of the pages is not the copy's price
        begun = time.perf_counter()
        self.move(pools, moves)
        return (time.perf_counter() - begun) / (2 * blocks.size)
