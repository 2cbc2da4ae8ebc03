"""Whole blocks on the move, against copies written out one by one."""

import numpy as np
import pytest

from plancha.messages import Int32s
from plancha.plans import Moves
from plancha_engine.host_pool import HostPool


def column(*values: int) -> Int32s:
    return np.array(values, np.int32)


def pools() -> tuple[np.ndarray, np.ndarray]:
    randomness = np.random.default_rng(5)
    keys = randomness.normal(size=(3, 10, 2, 4, 8)).astype(np.float32)
    values = randomness.normal(size=(3, 10, 2, 8, 4)).astype(np.float32)
    return keys, values


def test_blocks_go_out_then_are_copied_then_come_in() -> None:
    device = pools()
    before = [pool.copy() for pool in device]
    host = HostPool(device, 4)
    host.move(device, Moves(column(1, 2), column(3, 0), column(5), column(1), column(), column()))
    host.move(device, Moves(column(7), column(1), column(), column(), column(3, 0), column(7, 9)))
    for pool, old in zip(device, before, strict=True):
        for layer in range(3):
            assert (pool[layer, 1] == old[layer, 5]).all()  # went out, then was written over
            assert (pool[layer, 7] == old[layer, 1]).all()  # went out, then took what came in
            assert (pool[layer, 9] == old[layer, 2]).all()
            for same in (0, 2, 3, 4, 5, 6, 8):
                assert (pool[layer, same] == old[layer, same]).all()


def test_the_host_keeps_what_it_has_when_the_device_is_made_anew() -> None:
    device = pools()
    before = [pool.copy() for pool in device]
    host = HostPool(device, 2)
    none = column()
    host.move(device, Moves(column(4), column(1), none, none, none, none))
    again = tuple(np.zeros_like(pool) for pool in device)
    host.move(again, Moves(none, none, none, none, column(1), column(0)))
    for pool, old in zip(again, before, strict=True):
        assert (pool[:, 0] == old[:, 4]).all()


@pytest.mark.parametrize(("host_blocks", "positive"), [(0, False), (3, True)])
def test_a_copy_is_timed_where_there_is_something_to_copy_to(
    host_blocks: int, positive: bool
) -> None:
    device = pools()
    assert (HostPool(device, host_blocks).block_copy_s(device) > 0) is positive
