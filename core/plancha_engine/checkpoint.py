"""A model on disk, opened and checked: its config and exactly the tensors it needs."""

import os
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import attrs
import torch

from plancha.contracts import LoadError
from plancha_engine.config import ModelConfig, check_config
from plancha_engine.gguf_checkpoint import open_gguf
from plancha_engine.parameters import StoredTensor, check_parameters
from plancha_engine.safetensors_checkpoint import open_safetensors


@attrs.frozen
class Checkpoint:
    """Every parameter is there with its right shape, none is left over; nothing is read yet."""

    path: Path
    config: ModelConfig
    notes: tuple[str, ...]  # what the operator should know: decisions made for this file
    stored: Mapping[str, StoredTensor] = attrs.field(repr=False)

    def tensors(self, dtype: torch.dtype = torch.float32) -> Iterator[tuple[str, torch.Tensor]]:
        """Each parameter once, in the model's order, contiguous, on the CPU.

        A few are decoded ahead in threads; memory beyond what the caller keeps is bounded by them.
        Raises `LoadError` naming a tensor that holds NaN or infinity or cannot be read.
        """
        workers = min(8, os.cpu_count() or 1)
        with ThreadPoolExecutor(workers, thread_name_prefix="checkpoint") as pool:
            ahead: deque[tuple[str, Future[torch.Tensor]]] = deque()
            for name, tensor in self.stored.items():
                ahead.append((name, pool.submit(self._read, name, tensor, dtype)))
                if len(ahead) > 2 * workers:
                    first, decoded = ahead.popleft()
                    yield first, decoded.result()
            for name, decoded in ahead:
                yield name, decoded.result()

    def load(self, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
        """All parameters by name, as `tensors` gives them."""
        return dict(self.tensors(dtype))

    def _read(self, name: str, tensor: StoredTensor, dtype: torch.dtype) -> torch.Tensor:
        values = tensor.read()
        lowest, highest = values.aminmax()
        if not (lowest.isfinite() and highest.isfinite()):
            raise LoadError(
                f"{self.path}: tensor {name} holds NaN or infinity; the file is damaged"
            )
        converted = values.to(dtype)
        if dtype == torch.float16 and not converted.isfinite().all():
            raise LoadError(
                f"{self.path}: tensor {name} reaches {max(-lowest.item(), highest.item()):g},"
                ' more than float16 can hold; use dtype = "bfloat16" or "float32"'
            )
        return converted


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a GGUF file or a safetensors folder and check it whole, without reading the weights.

    Raises `LoadError` for anything that cannot be served exactly: unknown architecture or option,
    a tensor missing, unused or misshapen, shards missing, a file cut short.
    """
    try:
        opened = open_safetensors(path) if path.is_dir() else open_gguf(path)
    except OSError as error:
        raise LoadError(f"{path}: {error.strerror or error}") from error
    check_config(opened.config, str(path))
    stored = check_parameters(opened.config, opened.stored, str(path))
    config, notes = _within_window(opened.config)
    return Checkpoint(path, config, (*opened.notes, *notes), stored)


def _within_window(config: ModelConfig) -> tuple[ModelConfig, tuple[str, ...]]:
    """Attention here is full; inside one window that is the same as sliding attention."""
    window = config.sliding_window
    if window is None or window >= config.context_length:
        return config, ()
    note = (
        f"the model slides its attention over {window} tokens, which is not supported:"
        f" context limited to {window} tokens instead of {config.context_length}"
    )
    return attrs.evolve(config, context_length=window), (note,)
