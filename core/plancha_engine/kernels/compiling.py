"""How kernels are compiled: all at once, ahead of use, for this CPU, into a cache folder.

numba takes a cached kernel for stale when its own file has changed. Kernels inline functions of
other files, so the folder's name holds a hash of them all.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.extending import intrinsic as numba_intrinsic

from plancha_engine.kernels.openmp import ensure_openmp
from plancha_engine.model_cache import models_folder

Function = TypeVar("Function", bound=Callable[..., Any])

ARITHMETIC = {"contract"}
"""A product and a sum may fuse into one rounding; nothing else is changed."""

intrinsic = cast(Callable[[Callable[..., Any]], Callable[..., Any]], numba_intrinsic)
"""numba's, typed as what kernels see: the first argument, numba's typing context, is not theirs."""

_config: Any = numba.config
_kernels: list[tuple[Any, tuple[str, ...]]] = []  # not compiled yet


def _use_cache_folder() -> None:
    """A folder of ours unless the operator chose one; a temporary one if that cannot be written."""
    if "NUMBA_CACHE_DIR" in os.environ:
        return
    digest = hashlib.sha256(numba.__version__.encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    folder = models_folder().parent / "kernels" / digest.hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except OSError:
        writable = False
    _config.CACHE_DIR = str(folder) if writable else tempfile.mkdtemp(prefix="plancha-")


def kernel(*signatures: str, parallel: bool = False) -> Callable[[Function], Function]:
    """A function that Python calls, for these numba signatures and no others."""

    def decorate(function: Function) -> Function:
        dispatcher = numba.njit(
            cache=True, parallel=parallel, nogil=True, error_model="numpy", fastmath=ARITHMETIC
        )(function)
        _kernels.append((dispatcher, signatures))
        return cast(Function, dispatcher)

    return decorate


def compile_kernels() -> None:
    """Compile all kernels imported so far, or take them from the cache; nothing compiles later."""
    ensure_openmp(Path(_config.CACHE_DIR))
    while _kernels:
        dispatcher, signatures = _kernels.pop()
        for signature in signatures:
            dispatcher.compile(signature)
        dispatcher.disable_compile()


def inlined(function: Function) -> Function:
    """A function that only kernels call; compiled into each of them."""
    return cast(Function, numba.njit(error_model="numpy", fastmath=ARITHMETIC)(function))


def summing(function: Function) -> Function:
    """As `inlined`, and its sums may be taken in any order, so that LLVM can vectorise them."""
    arithmetic = ARITHMETIC | {"reassoc"}
    return cast(Function, numba.njit(error_model="numpy", fastmath=arithmetic)(function))


_use_cache_folder()
