"""Kernels compiled for the CPU, and launches run on it; `include/emulation.h` says how."""

import ctypes
import hashlib
import itertools
import os
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import attrs
import numpy as np
import torch

from plancha_engine.cuda.launch import Kernel, Launch

Order = Literal["forward", "reverse", "random"]
ORDERS: tuple[Order, ...] = ("forward", "reverse", "random")
Sanitizer = Literal["none", "address", "thread"]

INCLUDE = Path(__file__).parent / "include"
FLAGS = ("-std=c++17", "-fno-strict-aliasing", "-w")
OTHER_FLAGS: dict[Sanitizer, tuple[str, ...]] = {
    "none": ("-O1",),
    "address": ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
    "thread": ("-O1", "-g", "-fsanitize=thread"),
}
ENVIRONMENT = os.environ | {
    "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0",
    "TSAN_OPTIONS": "halt_on_error=1",
}
MOST_S = 240  # of one run


class EmulationError(Exception):
    """A kernel did what it must not; the message is the emulation's or the sanitizer's."""


@attrs.frozen
class Compiler:
    """Builds programs, and keeps them by a hash of all that went into them."""

    path: str  # of g++
    cache: Path

    def build(self, kernels: Sequence[Kernel], sanitizer: Sanitizer = "none") -> "Program":
        """One program for kernels of one source."""
        kernels = list(dict.fromkeys(kernels))
        (source,) = {kernel.source for kernel in kernels}
        text = "\n".join(
            (
                '#include "emulation.h"',
                source,
                '#line 1 "program.cpp"',
                '#include "program.h"',
                *(_signature_check(kernel) for kernel in kernels),
                "static const emulation::KernelCall kernels[] = {",
                *(f"  emulation::call<&{kernel.name}>," for kernel in kernels),
                "};",
                "int main(int, char** paths) {",
                "  return emulation::run_program(paths[1], paths[2], kernels);",
                "}\n",
            )
        )
        flags = (*FLAGS, *OTHER_FLAGS[sanitizer])
        return Program(self._compiled(text, flags), tuple(kernels))

    def _compiled(self, text: str, flags: tuple[str, ...]) -> Path:
        parts = [text, *flags, *(header.read_text() for header in sorted(INCLUDE.iterdir()))]
        name = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
        program = self.cache / name
        if not program.exists():
            source = self.cache / f"{name}.cpp"
            source.write_text(text)
            unfinished = self.cache / f"{name}.{os.getpid()}"
            command = [self.path, *flags, f"-I{INCLUDE}", str(source), "-o", str(unfinished)]
            made = subprocess.run(command, capture_output=True, text=True, timeout=MOST_S)
            if made.returncode:
                raise EmulationError(made.stderr[:4000])
            unfinished.replace(program)
        return program


@attrs.frozen
class Program:
    """An executable of some kernels."""

    path: Path
    kernels: tuple[Kernel, ...]

    def run(
        self,
        launches: Sequence[Launch],
        order: Order = "forward",
        *,
        copy_early: bool = False,
        seed: int = 1,
    ) -> None:
        """Run the launches one after another on their tensors. Raises `EmulationError`.

        `order` is that of blocks, and of threads wherever they may go on; asynchronous copies
        happen when they are waited for, or early, when they are started.
        """
        storages = _storages(launches)
        with tempfile.TemporaryDirectory(prefix="cuda-emulation-") as folder:
            given, written = Path(folder, "in"), Path(folder, "out")
            given.write_bytes(
                self._case(launches, storages, (ORDERS.index(order), seed, copy_early))
            )
            ran = subprocess.run(
                [self.path, given, written],
                capture_output=True,
                text=True,
                env=ENVIRONMENT,
                timeout=MOST_S,
            )
            if ran.returncode:
                raise EmulationError(f"exit {ran.returncode}: {ran.stderr[:8000]}")
            memory = written.read_bytes()
        at = 0
        for storage in storages:
            ctypes.memmove(storage.data_ptr(), memory[at : at + storage.nbytes()], storage.nbytes())
            at += storage.nbytes()

    def _case(
        self,
        launches: Sequence[Launch],
        storages: Sequence[torch.UntypedStorage],
        schedule: tuple[int, int, bool],
    ) -> bytes:
        """The file that `program.h` reads."""
        parts = [_int64s(*schedule, len(storages))]
        for storage in storages:
            parts.append(_int64s(storage.nbytes()))
            parts.append(ctypes.string_at(storage.data_ptr(), storage.nbytes()))
        addresses = [storage.data_ptr() for storage in storages]
        parts.append(_int64s(len(launches)))
        for launch in launches:
            parts.append(
                _int64s(
                    self.kernels.index(launch.kernel),
                    *launch.grid,
                    *launch.block,
                    launch.shared_bytes,
                    len(launch.arguments),
                )
            )
            for argument in launch.arguments:
                if isinstance(argument, torch.Tensor):
                    begin = argument.untyped_storage().data_ptr()
                    parts.append(_int64s(addresses.index(begin), argument.data_ptr() - begin))
                else:
                    parts.append(_int64s(-1) + _scalar(argument))
        return b"".join(parts)


def _signature_check(kernel: Kernel) -> str:
    types = ", ".join(parameter.c_type for parameter in kernel.parameters)
    name = kernel.name
    return (
        f"static_assert(std::is_same_v<decltype(&{name}), void (*)({types})>,"
        f' "the parameters that Python declares for {name} are not the kernel\'s");'
    )


def _storages(launches: Sequence[Launch]) -> list[torch.UntypedStorage]:
    """Each piece of memory that the launches' tensors lie in, once."""
    arguments = itertools.chain.from_iterable(launch.arguments for launch in launches)
    tensors = (argument for argument in arguments if isinstance(argument, torch.Tensor))
    storages = (tensor.untyped_storage() for tensor in tensors)
    return list({storage.data_ptr(): storage for storage in storages}.values())


def _int64s(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}q", *numbers)


def _scalar(scalar: np.generic) -> bytes:
    return scalar.tobytes().ljust(8, b"\0")
