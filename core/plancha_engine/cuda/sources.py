"""The kernels' CUDA C++, complete in one string: no compiler has to find a file of ours."""

from functools import cache
from importlib.resources import files

PRELUDE = ("elements.cuh", "instructions.cuh")


@cache
def source(*names: str) -> str:
    """Files of `source/` behind what every kernel uses; compilers' messages name file and line."""
    folder = files("plancha_engine.cuda") / "source"
    return "".join(
        f'#line 1 "{part}"\n{(folder / part).read_text(encoding="utf-8")}'
        for part in (*PRELUDE, *names)
    )
