"""A Hugging Face folder as a model: config.json and one or many .safetensors files.

Format: https://github.com/huggingface/safetensors#format. Pickled weights are never read.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from plancha.contracts import LoadError
from plancha_engine.hugging_face_config import read_config, read_json
from plancha_engine.parameters import OpenedModel, StoredTensor

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
_SHARD = re.compile(r"(?P<set>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.safetensors")
_PICKLED = (".bin", ".pt", ".pth", ".ckpt")
_DERIVED = ".rotary_emb.inv_freq"  # old Llama folders carry this table; it follows from the config
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def open_safetensors(folder: Path) -> OpenedModel:
    """Read config and headers; tensors are read when they are asked for, in the file's dtype.

    Raises `LoadError` for shards that are missing, empty or cut short, for a tensor in two shards
    or not where the index says, and for an unsupported config.
    """
    if not (folder / "config.json").exists():
        raise LoadError(f"{folder}: no config.json{_instead(folder)}")
    shards, index = _shards(folder)
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


def _instead(folder: Path) -> str:
    files = sorted(entry.name for entry in folder.iterdir() if entry.suffix == ".gguf")
    return f"; name a GGUF file itself: {folder / files[0]}" if files else ""


def _shards(folder: Path) -> tuple[Sequence[str], Mapping[str, str] | None]:
    """Names of the files that make up the model, all there, and the index if there is one."""
    if (folder / INDEX).exists():
        index = index_shards(folder / INDEX)
        shards: Sequence[str] = sorted(set(index.values()))
    elif (folder / SINGLE).exists():
        index, shards = None, (SINGLE,)
    else:
        index, shards = None, _shards_without_index(folder)
    if missing := [name for name in shards if not (folder / name).is_file()]:
        raise LoadError(f"{folder}: missing {', '.join(missing)}; is the download complete?")
    if empty := [name for name in shards if (folder / name).stat().st_size == 0]:
        raise LoadError(f"{folder}: {', '.join(empty)} is empty; is the download complete?")
    return shards, index


def index_shards(path: Path) -> dict[str, str]:
    """The file of each tensor, by an index. Raises `LoadError` when it points out of its folder."""
    entries: Any = read_json(path).get("weight_map")
    if not isinstance(entries, dict) or not entries:
        raise LoadError(f"{path}: weight_map must name each tensor's file")
    for name, shard in entries.items():
        plain = isinstance(shard, str) and Path(shard).name == shard
        if not (plain and shard.endswith(".safetensors")):
            raise LoadError(
                f"{path}: weight_map has {name} in {shard!r},"
                " must be a .safetensors file of this folder"
            )
    return entries


def _shards_without_index(folder: Path) -> Sequence[str]:
    """All shards of the one set that is there, by their numbering; or the only file there is."""
    names = sorted(entry.name for entry in folder.iterdir() if entry.suffix == ".safetensors")
    sets: dict[tuple[str, str], str] = {}
    for name in names:
        if match := _SHARD.fullmatch(name):
            sets.setdefault((match["set"], match["count"]), name)
    if len(sets) == 1 and len(names) > 0:
        ((stem, count),) = sets
        return [f"{stem}-{number:05}-of-{count}.safetensors" for number in range(1, int(count) + 1)]
    if len(names) == 1:
        return names
    if names:
        raise LoadError(f"{folder}: which to load of {', '.join(names)}? {INDEX} is missing")
    if pickled := sorted(entry.name for entry in folder.iterdir() if entry.suffix in _PICKLED):
        raise LoadError(
            f"{folder}: only pickled weights ({pickled[0]}), which can run code when loaded;"
            " convert them to .safetensors"
        )
    raise LoadError(f"{folder}: no .safetensors file")


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
        tensor: torch.Tensor = shard.get_tensor(name)
    except SafetensorError as error:
        raise LoadError(f"{path}: {name}: {error}") from error
    if tensor.dtype not in _FLOATS:
        raise LoadError(f"{path}: tensor {name} is {tensor.dtype}, must be float32, 16 or bfloat16")
    return tensor
