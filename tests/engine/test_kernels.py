"""The small kernels against torch, and against numbers published for them."""

import numba
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from plancha_engine.arrays import Float32s
from plancha_engine.kernels.compiling import ARITHMETIC
from plancha_engine.kernels.elementwise import add_and_normalise, gate, normalise
from plancha_engine.kernels.exponential import HIGHEST, exp
from plancha_engine.kernels.philox import philox, uniform
from plancha_engine.kernels.product import pack, product


@numba.njit(fastmath=ARITHMETIC)
def exps(x: Float32s, out: Float32s) -> None:
    for i in range(x.size):
        out[i] = exp(x[i])


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 6, 7, 13, 96, 97, 200])
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 16), (64, 48), (100, 33), (576, 5)])
def test_products_are_those_of_torch(rows: int, inputs: int, outputs: int) -> None:
    x, weight, bias = random(rows, inputs + 3), random(outputs, inputs), random(outputs)
    panels = pack(weight)
    padded = np.zeros(16 * panels.shape[0], np.float32)
    padded[:outputs] = bias
    for threads in (1, 2, 5):
        out = np.full((rows, padded.size), np.nan, np.float32)
        product(x.numpy(), panels, padded, out, threads)
        expected = F.linear(x[:, :inputs], weight, bias).numpy()
        np.testing.assert_allclose(out[:, :outputs], expected, rtol=1e-5, atol=1e-4)
        assert not out[:, outputs:].any()


@pytest.mark.parametrize("rows", [1, 4, 5, 33])
def test_norms_and_gates_are_those_of_torch(rows: int) -> None:
    hidden, change = random(rows, 72), random(rows, 80)
    total = hidden + change[:, :72]
    out = np.empty((rows, 72), np.float32)
    normalise(hidden.numpy(), 1e-5, out)
    np.testing.assert_allclose(out, F.rms_norm(hidden, (72,), eps=1e-5), atol=1e-6)
    add_and_normalise(hidden.numpy(), change.numpy(), 1e-5, out)
    np.testing.assert_array_equal(hidden, total)
    np.testing.assert_allclose(out, F.rms_norm(total, (72,), eps=1e-5), atol=1e-6)
    gated = np.empty((rows, 40), np.float32)
    gate((50 * change).numpy(), gated)
    halves = (50 * change).chunk(2, dim=1)
    np.testing.assert_allclose(gated, F.silu(halves[0]) * halves[1], rtol=1e-6, atol=1e-30)


def test_exp_is_within_three_units_in_the_last_place() -> None:
    x = np.linspace(-87.3, HIGHEST, 200_001).astype(np.float32)
    out = np.empty_like(x)
    exps(x, out)
    exact = np.exp(x.astype(np.float64))
    assert np.max(np.abs(out - exact) / np.spacing(exact.astype(np.float32))) < 3


def test_exp_at_its_ends() -> None:
    x = np.array([-88, -1e30, -np.inf, 0, np.nan], np.float32)
    out = np.empty_like(x)
    exps(x, out)
    np.testing.assert_array_equal(out, np.array([0, 0, 0, 1, np.nan], np.float32))


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [  # the known answers that the authors' Random123 library is tested with
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_random_words_are_the_published_ones(
    counter: list[int], key: list[int], words: list[int]
) -> None:
    assert list(philox(*map(np.uint64, counter), *map(np.uint64, key))) == words


def test_random_numbers_are_made_of_the_first_two_words() -> None:
    bits = (0x6627E8D5 >> 5) * 2**26 + (0xE169C58D >> 6)
    assert uniform(np.uint64(0), np.uint64(0)) == bits / 2**53
