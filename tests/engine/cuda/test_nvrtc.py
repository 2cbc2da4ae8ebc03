"""NVRTC's machine code for every architecture, where there is no GPU."""

import importlib.util

import pytest

from plancha_engine.cuda.compiling import ARCHITECTURES, Resources, compile_kernels
from plancha_engine.cuda.instantiations import all_kernels
from plancha_engine.cuda.launch import Kernel

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("cupy") is None,
    reason="the extra `cuda` is not installed; `make test-cuda` installs it",
)

ELF = b"\x7fELF"
MOST_REGISTERS = {
    "decode 1": 72,
    "decode 2": 128,
    "decode 4": 168,
    "decode 8": 255,
    "decode_tensor 8": 168,
    "decode_tensor 16": 168,
    "prefill": 128,
    "prefill_tensor": 168,
}
"""By kernel and queries of a tile.

A multiprocessor has 65,536: blocks of 128 threads fit it 7 times with 72 of them, 4 times with
128, 3 times with 168, and twice with 255.
"""
MOST_REGISTERS_OF_OTHERS = 40


def budget(kernel: Kernel) -> int:
    name, _, parameters = kernel.name.partition("<")
    return MOST_REGISTERS.get(
        f"{name} {parameters.split(', ')[2]}" if name.startswith("decode") else name,
        MOST_REGISTERS_OF_OTHERS,
    )


def check(kernels: tuple[Kernel, ...], architecture: str) -> None:
    modules = compile_kernels(kernels, architecture)
    resources: dict[str, Resources] = {}
    for module in modules:
        assert module.cubin.startswith(ELF)
        resources |= module.resources
    for kernel in kernels:
        used = resources[kernel.name]
        assert (used.spilled_bytes, used.stack_bytes) == (0, 0), (kernel.name, used)
        assert used.registers <= budget(kernel), (kernel.name, used)


def test_the_kernels_of_common_models_compile_without_spills() -> None:
    names = ("decode_tensor<__nv_bfloat16, 128, 8, 16>", "write_kv<__half, 96, 32>", "copy_blocks")
    check(tuple(kernel for kernel in all_kernels() if kernel.name in names), "sm_90")


@pytest.mark.nvrtc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_instantiation_compiles_without_spills_and_within_its_registers(
    architecture: str,
) -> None:
    check(all_kernels(), architecture)
