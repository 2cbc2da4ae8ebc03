"""The kernels on a GPU: loaded once through CuPy, launched on its current stream."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from plancha_engine.cuda.compiling import OPTIONS, include_options
from plancha_engine.cuda.launch import Argument, Dimensions, Kernel, Launch

SHARED_BYTES_WITHOUT_ASKING = 48 * 1024


class Function(Protocol):
    """A loaded kernel: CuPy's `RawKernel`."""

    max_dynamic_shared_size_bytes: int

    def __call__(
        self, grid: Dimensions, block: Dimensions, args: tuple[np.generic, ...], shared_mem: int
    ) -> None:
        """Enqueue it."""
        ...


class Module(Protocol):
    """Kernels of one source: CuPy's `RawModule`."""

    def compile(self) -> None:
        """Compile and load now, not at the first launch."""
        ...

    def get_function(self, name: str) -> Function:
        """The kernel of that C++ name."""
        ...


class MakeModule(Protocol):
    """The constructor of CuPy's `RawModule`."""

    def __call__(
        self, *, code: str, options: tuple[str, ...], name_expressions: Sequence[str]
    ) -> Module:
        """A module that is not compiled yet."""
        ...


class Launcher:
    """Compiles everything when it is made; a kernel that it was not made with raises `KeyError`."""

    def __init__(
        self, kernels: Iterable[Kernel], make_module: MakeModule, options: tuple[str, ...]
    ) -> None:
        by_source: dict[str, list[Kernel]] = {}
        for kernel in dict.fromkeys(kernels):
            by_source.setdefault(kernel.source, []).append(kernel)
        self._functions: dict[Kernel, Function] = {}
        for source, group in by_source.items():
            names = [kernel.name for kernel in group]
            module = make_module(code=source, options=options, name_expressions=names)
            module.compile()
            for kernel in group:
                self._functions[kernel] = module.get_function(kernel.name)

    def run(self, launch: Launch) -> None:
        """Enqueue the launch on CuPy's current stream and return at once."""
        function = self._functions[launch.kernel]
        if launch.shared_bytes > SHARED_BYTES_WITHOUT_ASKING:
            function.max_dynamic_shared_size_bytes = launch.shared_bytes
        arguments = tuple(_number(argument) for argument in launch.arguments)
        function(launch.grid, launch.block, arguments, shared_mem=launch.shared_bytes)


def cupy_launcher(kernels: Iterable[Kernel]) -> Launcher:
    """For the current GPU. Needs the extra `cuda`."""
    import cupy

    make_module: Any = cupy.RawModule
    return Launcher(kernels, make_module, (*OPTIONS, *include_options()))


def _number(argument: Argument) -> np.generic:
    """Of the size that the kernel takes: 8 bytes for an address."""
    if isinstance(argument, torch.Tensor):
        return np.uint64(argument.data_ptr())
    return argument
