"""What the cache of models holds, for those who ask what there is."""

from operator import itemgetter
from pathlib import Path

import attrs

from plancha_engine import hub
from plancha_engine.builtin_models import BUILTIN_MODELS, installed


@attrs.frozen
class CachedModel:
    """A whole model; `name` is what commands and deployments call it."""

    name: str
    path: Path
    bytes: int


def cached_models() -> list[CachedModel]:
    """By name. What is half there, or has been taken away since, is not told of."""
    built_in = [(name, installed(model)) for name, model in BUILTIN_MODELS.items()]
    named = [(str(name), hub.fetched(name)) for name in hub.recorded()]
    return [
        CachedModel(name, path, size_of(path))
        for name, path in sorted([*built_in, *named], key=itemgetter(0))
        if path is not None
    ]


def size_of(path: Path) -> int:
    """Bytes of a file, or of the files in a folder and below."""
    if path.is_file():
        return path.stat().st_size
    return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
