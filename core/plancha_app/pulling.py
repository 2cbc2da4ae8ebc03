"""`plancha pull`: a model fetched with progress, and what the cache holds."""

import sys

import attrs
from rich.console import Console

from plancha_app.machine_readable import show_json
from plancha_app.sizes import size_text
from plancha_engine.cached_models import CachedModel, cached_models, size_of
from plancha_engine.model_cache import models_folder
from plancha_engine.model_name import found, pull
from plancha_engine.report import ConsoleReport


def show_pulled(name: str, *, as_json: bool = False) -> int:
    """Fetch and check a model, and say where it is. Raises `LoadError`."""
    report = ConsoleReport(Console(stderr=True))
    before = found(name)
    path = pull(name, report)
    size = size_of(path)
    fetched = before != path
    if as_json:
        show_json({"name": name, "path": str(path), "bytes": size, "already_there": not fetched})
        return 0
    print(path)
    _say(f"{name}: {'fetched' if fetched else 'already there'}, {size_text(size)}, checked")
    return 0


def show_cache(*, as_json: bool = False) -> int:
    """One line a model: its name as commands take it, size and place."""
    models = cached_models()
    if as_json:
        show_json([_object(model) for model in models])
        return 0
    if not models:
        _say(f"{models_folder()} holds no model; `plancha pull smollm2` fetches a small one")
        return 0
    rows = [("NAME", "SIZE", "PATH")]
    rows += [(model.name, size_text(model.bytes), str(model.path)) for model in models]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, size, path in rows:
        print(f"{name:{widths[0]}}  {size:>{widths[1]}}  {path}")
    return 0


def _object(model: CachedModel) -> dict[str, object]:
    return {**attrs.asdict(model), "path": str(model.path)}


def _say(text: str) -> None:
    print(text, file=sys.stderr)
