"""The kernels compiled for the CPU."""

import platform
from collections.abc import Callable

import pytest

from cuda_emulation.program import Compiler


@pytest.fixture(scope="session")
def compiler(program: Callable[[str], str], pytestconfig: pytest.Config) -> Compiler:
    """What it builds is kept from one run of the tests to the next."""
    if platform.machine() != "x86_64":
        pytest.skip("the emulation of CUDA switches stacks in x86-64 instructions")
    assert pytestconfig.cache is not None
    return Compiler(program("g++"), pytestconfig.cache.mkdir("cuda_emulation"))
