import pytest
import torch

from plancha.contracts import LoadError
from plancha_engine.dtype import resolve_dtype

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def test_auto_is_float32_on_a_cpu_and_bfloat16_on_an_accelerator() -> None:
    assert resolve_dtype("auto", CPU) is torch.float32
    assert resolve_dtype("auto", CUDA) is torch.bfloat16


def test_a_dtype_named_is_the_one_used() -> None:
    assert resolve_dtype("float32", CPU) is torch.float32
    assert resolve_dtype("float16", CUDA) is torch.float16
    assert resolve_dtype("float32", CUDA) is torch.float32


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_precision_on_a_cpu_is_refused_with_what_would_be_right(name: str) -> None:
    with pytest.raises(LoadError, match=f'dtype is \'{name}\', must be "float32" or "auto" on a'):
        resolve_dtype(name, CPU)


def test_an_unknown_dtype_is_refused_with_those_known() -> None:
    with pytest.raises(LoadError, match="'fp8', must be auto, float32, float16, bfloat16"):
        resolve_dtype("fp8", CUDA)
