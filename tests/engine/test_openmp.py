"""numba's OpenMP threads on a system without libgomp."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import importlib.abc, sys
from pathlib import Path
import torch
from plancha_engine.kernels.openmp import MODULE, ensure_openmp


class NoLibrary(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == MODULE:
            sys.meta_path.remove(self)
            raise ImportError("libgomp.so.1.0.0: cannot open shared object file")


sys.meta_path.insert(0, NoLibrary())
ensure_openmp(Path(sys.argv[1]))

import numba


@numba.njit("i8(i8)", parallel=True)
def total(count):
    found = 0
    for i in numba.prange(count):
        found += i
    return found


print(numba.threading_layer(), total(1000), sys.modules[MODULE].__file__)
"""


@pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"),
    reason="elsewhere torch brings none of that name",
)
def test_numba_uses_the_library_that_torch_brings(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, check=True
    )
    layer, total, module = ran.stdout.split()
    assert (layer, total) == ("omp", "499500")
    assert Path(module).parent == tmp_path
