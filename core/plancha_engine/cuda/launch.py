"""One launch of a kernel, described so that a GPU and the tests' emulation run the same thing."""

from collections.abc import Mapping

import attrs
import numpy as np
import torch

Dimensions = tuple[int, int, int]
Argument = np.int32 | np.int64 | np.float32 | torch.Tensor
"""A tensor stands for the address of its first element."""

SCALARS: Mapping[str, type[np.generic]] = {
    "int": np.int32,
    "long long": np.int64,
    "float": np.float32,
}
ELEMENTS: Mapping[torch.dtype, str] = {
    torch.bfloat16: "__nv_bfloat16",
    torch.float16: "__half",
    torch.float32: "float",
    torch.int32: "int",
    torch.int64: "long long",
}
MOST_BLOCKS = (2**31 - 1, 65535, 65535)
MOST_THREADS = (1024, 1024, 64)
MOST_THREADS_OF_A_BLOCK = 1024
MOST_SHARED_BYTES = 163 * 1024  # of a block on compute capability 8.0, the least of those we use


@attrs.frozen
class Parameter:
    """A parameter of a kernel: `c_type` is a key of `SCALARS`, or a pointer such as `const int*`.

    `void*` takes the address of any tensor. A pointer's address is a multiple of `alignment`
    bytes: vector loads from anywhere else are an error on a GPU.
    """

    name: str
    c_type: str
    alignment: int = 1


@attrs.frozen
class Kernel:
    """An instantiation, `name` being the C++ expression for it, of a kernel in `source`."""

    name: str
    source: str
    parameters: tuple[Parameter, ...]


@attrs.frozen(eq=False)
class Launch:
    """A checked launch. Made by `launch`."""

    kernel: Kernel
    grid: Dimensions  # thread blocks
    block: Dimensions  # threads
    shared_bytes: int  # of dynamic shared memory
    arguments: tuple[Argument, ...]  # in the order of the kernel's parameters


def launch(
    kernel: Kernel,
    grid: Dimensions,
    block: Dimensions,
    shared_bytes: int,
    arguments: Mapping[str, Argument],
) -> Launch:
    """A launch with the arguments by name, each of exactly its parameter's type.

    Neither CuPy nor CUDA checks what a kernel is given, so it happens here: raises `TypeError` for
    an argument that is missing, unknown or of another type (a Python number among them, which
    CuPy would take for a double or an int64), `ValueError` for an address that is not aligned and
    for dimensions that no device can launch.
    """
    names = [parameter.name for parameter in kernel.parameters]
    if set(names) != set(arguments):
        missing = [name for name in names if name not in arguments]
        unknown = [name for name in arguments if name not in names]
        raise TypeError(f"{kernel.name}: arguments missing {missing}, unknown {unknown}")
    for parameter in kernel.parameters:
        _check(kernel, parameter, arguments[parameter.name])
    _check_dimensions(kernel, "grid", grid, MOST_BLOCKS)
    _check_dimensions(kernel, "block", block, MOST_THREADS)
    if block[0] * block[1] * block[2] > MOST_THREADS_OF_A_BLOCK:
        raise ValueError(
            f"{kernel.name}: a block of {block} threads; {MOST_THREADS_OF_A_BLOCK} fit"
        )
    if not 0 <= shared_bytes <= MOST_SHARED_BYTES:
        raise ValueError(
            f"{kernel.name}: {shared_bytes} bytes of shared memory; a block has {MOST_SHARED_BYTES}"
        )
    return Launch(kernel, grid, block, shared_bytes, tuple(arguments[name] for name in names))


def _check(kernel: Kernel, parameter: Parameter, argument: Argument) -> None:
    where = f"{kernel.name}: argument {parameter.name}"
    if not parameter.c_type.endswith("*"):
        wanted = SCALARS[parameter.c_type]
        if type(argument) is not wanted:
            raise TypeError(
                f"{where} is a {type(argument).__name__} ({argument!r});"
                f" {parameter.c_type} takes a numpy.{wanted.__name__}"
            )
        return
    if not isinstance(argument, torch.Tensor):
        raise TypeError(
            f"{where} is a {type(argument).__name__}; {parameter.c_type} takes a tensor"
        )
    element = parameter.c_type.removeprefix("const ").removesuffix("*").strip()
    if element not in ("void", ELEMENTS.get(argument.dtype)):
        raise TypeError(f"{where} is a tensor of {argument.dtype}; it must be {parameter.c_type}")
    if argument.data_ptr() % parameter.alignment:
        raise ValueError(
            f"{where} begins at address {argument.data_ptr():#x},"
            f" which is not a multiple of {parameter.alignment} bytes"
        )


def _check_dimensions(kernel: Kernel, what: str, given: Dimensions, most: Dimensions) -> None:
    if any(not 1 <= count <= limit for count, limit in zip(given, most, strict=True)):
        raise ValueError(f"{kernel.name}: a {what} of {given}; each is from 1 to {most}")
