"""Which files of a Hugging Face folder hold the weights: one, or many with an index or without."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from plancha.contracts import LoadError
from plancha_engine.hugging_face_config import read_json

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
_SHARD = re.compile(r"(?P<set>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.safetensors")
_PICKLED = (".bin", ".pt", ".pth", ".ckpt")


def shards_of(folder: Path) -> tuple[Sequence[str], Mapping[str, str] | None]:
    """Names of the files that make up the model, all there, and the index if there is one.

    With an index, other .safetensors files are strays and left alone. Raises `LoadError` naming
    what is missing or empty, and for a folder that holds something else.
    """
    if not (folder / "config.json").exists():
        raise LoadError(f"{folder}: no config.json{_instead(folder)}")
    if (folder / INDEX).exists():
        index = index_shards(folder / INDEX)
        shards: Sequence[str] = sorted(set(index.values()))
    elif (folder / SINGLE).exists():
        index, shards = None, (SINGLE,)
    else:
        index, shards = None, _shards_without_index(folder)
    if missing := [name for name in shards if not (folder / name).is_file()]:
        raise LoadError(f"{folder}: missing {_listed(missing)}; is the download complete?")
    if empty := [name for name in shards if (folder / name).stat().st_size == 0]:
        raise LoadError(f"{folder}: empty file {_listed(empty)}; is the download complete?")
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
    if len(sets) == 1:
        ((stem, count),) = sets
        return [f"{stem}-{number:05}-of-{count}.safetensors" for number in range(1, int(count) + 1)]
    if len(names) == 1:
        return names
    if names:
        raise LoadError(f"{folder}: which to load of {_listed(names)}? {INDEX} is missing")
    if pickled := sorted(entry.name for entry in folder.iterdir() if entry.suffix in _PICKLED):
        raise LoadError(
            f"{folder}: only pickled weights ({pickled[0]}), which can run code when loaded;"
            " convert them to .safetensors"
        )
    raise LoadError(f"{folder}: no .safetensors file")


def _instead(folder: Path) -> str:
    files = sorted(entry.name for entry in folder.iterdir() if entry.suffix == ".gguf")
    return f"; name a GGUF file itself: {folder / files[0]}" if files else ""


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more
