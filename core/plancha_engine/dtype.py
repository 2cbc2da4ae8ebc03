"""Which floating-point type a model is computed in."""

from collections.abc import Mapping

import torch

from plancha.contracts import LoadError

DTYPES: Mapping[str, torch.dtype] = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


def resolve_dtype(requested: str, device: torch.device) -> torch.dtype:
    """The dtype for `auto` or one of `DTYPES` on this device, whatever the checkpoint is stored in.

    `auto` is float32 on a CPU, where half precision is emulated or missing, and bfloat16
    elsewhere. Raises `LoadError` for an unknown name and for half precision on a CPU.
    """
    if requested == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    if requested not in DTYPES:
        raise LoadError(f"dtype is {requested!r}, must be auto, {', '.join(DTYPES)}")
    if device.type == "cpu" and requested != "float32":
        raise LoadError(f'dtype is {requested!r}, must be "float32" or "auto" on a CPU')
    return DTYPES[requested]
