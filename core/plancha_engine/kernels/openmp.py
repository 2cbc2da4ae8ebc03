"""numba's threads where the system has no libgomp: lend it the one that torch brings.

numba's OpenMP module asks for the file `libgomp.so.1.0.0`, which comes with compilers; slim
containers have none, and numba would fall back to threads that take half as long again for a step.
torch has loaded `libgomp.so.1`, the same library; a copy of the module that asks for that name
finds it.
"""

import importlib
import importlib.util
import os
import sys
import tempfile
from importlib.machinery import ExtensionFileLoader
from pathlib import Path

MODULE = "numba.np.ufunc.omppool"
ASKED, PRESENT = b"libgomp.so.1.0.0\0", b"libgomp.so.1\0"


def ensure_openmp(folder: Path) -> None:
    """Make numba's OpenMP module importable if it can be; a changed copy is put into `folder`.

    Where it cannot, numba uses threads of its own: slower, and otherwise the same.
    """
    try:
        importlib.import_module(MODULE)
    except ImportError:
        spec = importlib.util.find_spec(MODULE)
        if spec is not None and spec.origin is not None:
            _load_copy(Path(spec.origin), folder)


def _load_copy(original: Path, folder: Path) -> None:
    asking = original.read_bytes()
    copy = folder / original.name
    if not copy.exists():
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as written:
            written.write(asking.replace(ASKED, PRESENT.ljust(len(ASKED), b"\0")))
        os.replace(written.name, copy)  # whole or not at all, whoever else starts just now
    loader = ExtensionFileLoader(MODULE, str(copy))
    spec = importlib.util.spec_from_loader(MODULE, loader)
    assert spec is not None
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError:
        return  # torch has brought none either
    sys.modules[MODULE] = module
    parent, _, name = MODULE.rpartition(".")
    setattr(importlib.import_module(parent), name, module)
