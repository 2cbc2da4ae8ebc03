"""A Hugging Face folder as a model: config.json and one or many .safetensors files.

Format: https://github.com/huggingface/safetensors#format. Pickled weights are never read.
"""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from plancha.contracts import LoadError
from plancha_engine.hugging_face_config import read_config
from plancha_engine.parameters import OpenedModel, StoredTensor
from plancha_engine.safetensors_files import INDEX, shards_of

_DERIVED = ".rotary_emb.inv_freq"  # old Llama folders carry this table; it follows from the config
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def open_safetensors(folder: Path) -> OpenedModel:
    """Read config and headers; tensors are read when they are asked for, in the file's dtype.

    Raises `LoadError` for shards that are missing, empty or cut short, for a tensor in two shards
    or not where the index says, and for an unsupported config.
    """
    shards, index = shards_of(folder)
    config = read_config(folder)
    stored: dict[str, StoredTensor] = {}
    for shard in shards:
        for name, tensor in _open_shard(folder / shard).items():
            if name in stored:
                raise LoadError(f"{folder / shard}: tensor {name} is in another shard too")
            if index is not None and index.get(name) != shard:
                raise LoadError(f"{folder / shard}: tensor {name} is not where {INDEX} has it")
            stored[name] = tensor
    if index is not None and (absent := sorted(set(index) - set(stored))):
        raise LoadError(
            f"{folder}: tensor {absent[0]} is in {INDEX}, but not in {index[absent[0]]}"
        )
    notes = []
    for name in [name for name in stored if name.endswith(_DERIVED)]:
        del stored[name]
    if config.tied_head and stored.pop("lm_head.weight", None) is not None:
        notes.append("lm_head.weight ignored: config.json ties the head to the embedding")
    return OpenedModel(config, stored, tuple(notes))


def _open_shard(path: Path) -> dict[str, StoredTensor]:
    try:
        shard: Any = safe_open(path, framework="pt", device="cpu")
        return {
            name: StoredTensor(
                tuple(shard.get_slice(name).get_shape()), partial(_read, path, shard, name)
            )
            for name in shard.keys()
        }
    except SafetensorError as error:
        raise LoadError(f"{path}: {error}; is the download complete?") from error


def _read(path: Path, shard: Any, name: str) -> torch.Tensor:
    try:
        # A copy, since the library's tensors are views of the file, which can change or vanish.
        tensor: torch.Tensor = shard.get_tensor(name).clone()
    except SafetensorError as error:
        raise LoadError(f"{path}: {name}: {error}") from error
    if tensor.dtype not in _FLOATS:
        raise LoadError(f"{path}: tensor {name} is {tensor.dtype}, must be float32, 16 or bfloat16")
    return tensor
