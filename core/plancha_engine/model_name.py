"""From what an operator calls a model to the file or folder it is in."""

import difflib
import os
from pathlib import Path

from plancha.contracts import LoadError
from plancha_engine import hub
from plancha_engine.builtin_models import BUILTIN_MODELS, install, installed
from plancha_engine.report import Report


def resolve(name: str, report: Report) -> Path:
    """The GGUF file or safetensors folder `name` stands for, fetched only if it is not there yet.

    `name` is a built-in one (`smollm2`), `hf:org/name`, or a path. A cached model needs no
    network; built-in ones are checked by their size. Raises `LoadError` saying what to do.
    """
    return _locate(name, report, thoroughly=False)


def pull(name: str, report: Report) -> Path:
    """As `resolve`, but check a built-in model's SHA-256, and bring a hub's model up to date."""
    return _locate(name, report, thoroughly=True)


def found(name: str) -> Path | None:
    """Where `name` is already; None: not whole, or nowhere. Built-in ones are checked by SHA-256.

    Raises `LoadError` for a name of the hub's that is none.
    """
    if (model := BUILTIN_MODELS.get(name)) is not None:
        return installed(model, thoroughly=True)
    if name.startswith(hub.PREFIX):
        return hub.fetched(hub.HubName.parse(name))
    path = Path(os.path.expanduser(name))
    return path.absolute() if path.exists() else None


def _locate(name: str, report: Report, *, thoroughly: bool) -> Path:
    if (model := BUILTIN_MODELS.get(name)) is not None:
        return install(model, report, thoroughly=thoroughly)
    if name.startswith(hub.PREFIX):
        hub_name = hub.HubName.parse(name)
        whole = None if thoroughly else hub.fetched(hub_name)
        return whole or hub.fetch(hub_name, report)
    path = os.path.expanduser(name)
    if not os.path.exists(path):
        raise LoadError(_unknown(name))
    return Path(path).absolute()


def _unknown(name: str) -> str:
    names = ", ".join(sorted(BUILTIN_MODELS))
    near = difflib.get_close_matches(name, BUILTIN_MODELS, n=1)
    if near:
        hint = f"did you mean {near[0]!r}?"
    elif name.count("/") == 1 and not name.startswith(("/", ".", "~")):
        hint = f"is it on the hub? Then say {hub.PREFIX}{name}"
    else:
        hint = f"must be a path, {hub.PREFIX}organisation/name, or one of: {names}"
    return f"model {name!r}: no such file or folder; {hint}"
