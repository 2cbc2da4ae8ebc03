"""NVRTC: kernels to machine code, with no GPU in sight. Needs the extra `cuda`."""

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from plancha_engine.cuda.launch import Kernel

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
"""Ampere, Hopper and Blackwell of data centres."""

OPTIONS = ("-std=c++17",)

PTXAS_REPORT = re.compile(
    r"Compiling entry function '(?P<name>\w+)' for '\w+'"
    r".*?(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores,"
    r" (?P<loads>\d+) bytes spill loads"
    r".*?Used (?P<registers>\d+) registers",
    re.DOTALL,
)


@attrs.frozen
class Resources:
    """What a thread of a kernel takes, as ptxas reports it."""

    registers: int  # of 32 bits
    spilled_bytes: int  # stored to local memory and loaded from it, for want of registers
    stack_bytes: int


@attrs.frozen
class Compiled:
    """Machine code of several kernels of one source, for one architecture."""

    cubin: bytes
    lowered_names: Mapping[str, str]  # by the kernels' names: what they are called in the cubin
    resources: Mapping[str, Resources]  # by the kernels' names


def include_options() -> tuple[str, ...]:
    """Where `cuda_fp16.h` and `cuda_bf16.h` are: the wheel `nvidia-cuda-runtime`, or a toolkit."""
    from cuda.pathfinder import find_nvidia_header_directory

    folder = find_nvidia_header_directory("cudart")
    if folder is None:
        raise FileNotFoundError(
            "CUDA's headers are missing: install the extra `cuda` (pip install 'plancha[cuda]')"
        )
    return (f"-I{folder}",)


def compile_kernels(kernels: Iterable[Kernel], architecture: str) -> tuple[Compiled, ...]:
    """All kernels, grouped by their source. Raises CuPy's `CompileException` with NVRTC's log."""
    by_source: dict[str, list[str]] = {}
    for kernel in dict.fromkeys(kernels):
        by_source.setdefault(kernel.source, []).append(kernel.name)
    return tuple(_compile(source, names, architecture) for source, names in by_source.items())


def _compile(source: str, names: Sequence[str], architecture: str) -> Compiled:
    # CuPy's public compile_using_nvrtc asks the current device for its architecture.
    from cupy.cuda.compiler import _NVRTCProgram

    log = io.StringIO()
    program: Any = _NVRTCProgram(source, "plancha.cu", name_expressions=names, method="cubin")
    options = (*OPTIONS, f"-arch={architecture}", "--ptxas-options=-v", *include_options())
    cubin, lowered = program.compile(options, log)
    resources = {}
    for report in PTXAS_REPORT.finditer(log.getvalue()):
        resources[report["name"]] = Resources(
            registers=int(report["registers"]),
            spilled_bytes=int(report["stores"]) + int(report["loads"]),
            stack_bytes=int(report["stack"]),
        )
    return Compiled(
        cubin=cubin + b"\0",  # CuPy drops the last byte, as if it were a string's end
        lowered_names=lowered,
        resources={name: resources[lowered[name]] for name in names},
    )
