"""What may be handed to a kernel, and how it reaches the GPU."""

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import pytest
import torch

from plancha_engine.cuda.launch import Argument, Kernel, Launch, Parameter, launch
from plancha_engine.cuda.launcher import Launcher

KERNEL = Kernel(
    "scale<float>",
    "source",
    (
        Parameter("out", "float*", alignment=16),
        Parameter("index", "const int*"),
        Parameter("anything", "const void*"),
        Parameter("count", "int"),
        Parameter("stride", "long long"),
        Parameter("factor", "float"),
    ),
)


def arguments(**changed: Any) -> dict[str, Argument]:
    given: dict[str, Argument] = {
        "out": torch.zeros(8),
        "index": torch.zeros(8, dtype=torch.int32),
        "anything": torch.zeros(8, dtype=torch.float16),
        "count": np.int32(8),
        "stride": np.int64(2**40),
        "factor": np.float32(0.5),
    }
    return given | changed


def a_launch(**changed: Any) -> Launch:
    return launch(KERNEL, (1, 1, 1), (32, 1, 1), 0, arguments(**changed))


def test_arguments_go_in_the_kernels_order() -> None:
    given = arguments()
    shuffled = dict(reversed(given.items()))
    made = launch(KERNEL, (3, 2, 1), (32, 2, 1), 1024, shuffled)
    assert [id(argument) for argument in made.arguments] == [
        id(given[parameter.name]) for parameter in KERNEL.parameters
    ]


@pytest.mark.parametrize(
    ("name", "wrong", "complaint"),
    [
        ("factor", 0.5, "argument factor is a float (0.5); float takes a numpy.float32"),
        ("factor", np.float64(0.5), "argument factor is a float64"),
        ("count", 8, "argument count is a int (8); int takes a numpy.int32"),
        ("count", np.int64(8), "argument count is a int64"),
        ("stride", np.int32(8), "argument stride is a int32"),
        ("index", np.int32(8), "argument index is a int32; const int* takes a tensor"),
        ("index", torch.zeros(8, dtype=torch.int64), "a tensor of torch.int64; it must be const"),
        ("out", torch.zeros(8, dtype=torch.float16), "of torch.float16; it must be float*"),
    ],
)
def test_an_argument_of_another_type_is_refused(name: str, wrong: Any, complaint: str) -> None:
    with pytest.raises(TypeError) as refused:
        a_launch(**{name: wrong})
    assert complaint in str(refused.value)


def test_missing_and_unknown_arguments_are_named() -> None:
    given = arguments(facter=np.float32(1))
    del given["factor"]
    with pytest.raises(TypeError, match=r"missing \['factor'\], unknown \['facter'\]"):
        launch(KERNEL, (1, 1, 1), (32, 1, 1), 0, given)


def test_an_address_that_vectors_cannot_be_loaded_from_is_refused() -> None:
    with pytest.raises(ValueError, match="not a multiple of 16 bytes"):
        a_launch(out=torch.zeros(8)[1:])


@pytest.mark.parametrize(
    ("grid", "block", "shared_bytes"),
    [
        ((0, 1, 1), (32, 1, 1), 0),
        ((1, 70_000, 1), (32, 1, 1), 0),
        ((1, 1, 1), (2048, 1, 1), 0),
        ((1, 1, 1), (64, 32, 1), 0),
        ((1, 1, 1), (32, 1, 1), 200 * 1024),
    ],
)
def test_what_no_device_can_launch_is_refused(grid: Any, block: Any, shared_bytes: int) -> None:
    with pytest.raises(ValueError, match="scale<float>: "):
        launch(KERNEL, grid, block, shared_bytes, arguments())


@attrs.define
class FakeFunction:
    calls: list[tuple[Any, ...]] = attrs.field(factory=list)
    max_dynamic_shared_size_bytes: int = 0

    def __call__(self, grid: Any, block: Any, args: Any, shared_mem: int) -> None:
        self.calls.append((grid, block, args, shared_mem))


class FakeModule:
    """CuPy's RawModule, as far as a launcher uses it."""

    made: list["FakeModule"]

    def __init__(
        self, code: str, options: tuple[str, ...], name_expressions: Sequence[str]
    ) -> None:
        self.code, self.compiled = code, False
        self.functions = {name: FakeFunction() for name in name_expressions}
        self.made.append(self)

    def compile(self) -> None:
        self.compiled = True

    def get_function(self, name: str) -> FakeFunction:
        assert self.compiled
        return self.functions[name]


@pytest.fixture
def modules() -> list[FakeModule]:
    FakeModule.made = []
    return FakeModule.made


def test_each_source_is_compiled_once_before_the_first_launch(modules: list[FakeModule]) -> None:
    twin = attrs.evolve(KERNEL, name="scale<double>")
    other = attrs.evolve(KERNEL, source="another source")
    Launcher([KERNEL, twin, KERNEL, other], FakeModule, ())
    assert [(module.code, list(module.functions)) for module in modules] == [
        ("source", ["scale<float>", "scale<double>"]),
        ("another source", ["scale<float>"]),
    ]
    assert all(module.compiled for module in modules)


def test_the_gpu_gets_scalars_of_the_kernels_size_and_addresses_of_eight_bytes(
    modules: list[FakeModule],
) -> None:
    launcher = Launcher([KERNEL], FakeModule, ())
    given = arguments()
    launcher.run(launch(KERNEL, (3, 2, 1), (32, 2, 1), 64 * 1024, given))
    function = modules[0].functions["scale<float>"]
    ((grid, block, args, shared_mem),) = function.calls
    assert (grid, block, shared_mem) == ((3, 2, 1), (32, 2, 1), 64 * 1024)
    assert function.max_dynamic_shared_size_bytes == 64 * 1024
    assert [arg.nbytes for arg in args] == [8, 8, 8, 4, 8, 4]
    out = given["out"]
    assert isinstance(out, torch.Tensor)
    assert args[0] == out.data_ptr() and args[3:] == (8, 2**40, 0.5)


def test_a_kernel_that_was_not_compiled_at_the_start_is_not_launched(
    modules: list[FakeModule],
) -> None:
    launcher = Launcher([], FakeModule, ())
    with pytest.raises(KeyError):
        launcher.run(a_launch())


def test_nothing_imports_cupy_before_a_kernel_is_compiled() -> None:
    script = (
        "import importlib, pkgutil, sys, plancha_engine.cuda as package\n"
        "for module in pkgutil.iter_modules(package.__path__, package.__name__ + '.'):\n"
        "    importlib.import_module(module.name)\n"
        "assert 'plancha_engine.cuda.launcher' in sys.modules\n"
        "assert 'cupy' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
