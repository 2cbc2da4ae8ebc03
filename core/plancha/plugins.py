"""Plugins by name: found by entry point, imported only when somebody names them.

The built-in plugins come through the same door as anyone's. A plugin that is named and cannot be
used is an error that stops the start; nothing else ever runs in its place.
"""

import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any

import attrs

from plancha.contracts import CONTRACT, LoadError, Site
from plancha.options import OptionsError, shown

GROUPS: Mapping[str, str] = MappingProxyType(
    {
        "scheduler": "plancha.schedulers",
        "allocator": "plancha.allocators",
        "executor": "plancha.executors",
        "transport": "plancha.transports",
    }
)
"""Entry-point group by the kind of plugin, as the TOML's tables are called."""

FIRST_CONTRACT = 1
"""What a plugin that names no contract was written for."""

Factory = Callable[[Mapping[str, Any], Site], Any]


class PluginError(Exception):
    """A named plugin that cannot be used; the message names it, its distribution and the reason."""


@attrs.frozen(kw_only=True)
class Plugin:
    """One installed plugin. `contract` is None as long as its module has not been imported."""

    kind: str
    name: str
    distribution: str
    version: str
    module: str
    contract: int | None


def listing() -> tuple[Plugin, ...]:
    """Every installed plugin, by kind and name. Imports none of them."""
    return tuple(
        Plugin(
            kind=kind,
            name=entry.name,
            distribution=_distribution(entry),
            version=entry.dist.version if entry.dist else "?",
            module=entry.value,
            contract=_contract_if_imported(entry),
        )
        for kind, group in GROUPS.items()
        for entry in sorted(entry_points(group=group), key=lambda entry: entry.name)
    )


def find(group: str, name: str) -> Factory:
    """The callable that makes plugin `name` of an entry-point group. Imports its module.

    Raises `PluginError`: no such plugin, more than one, failing to import, nothing that can be
    called, or written for another contract.
    """
    entry = _only_one(group, name)
    try:
        factory = entry.load()
    except (Exception, SystemExit) as error:
        raise PluginError(f"{_told(entry)} cannot be imported: {_reason(error)}") from error
    if not callable(factory):
        raise PluginError(
            f"{_told(entry)} is {type(factory).__name__} and cannot be called; "
            "it must be a callable (options, site) -> plugin"
        )
    contract = _contract(factory, entry)
    if contract != CONTRACT:
        raise PluginError(
            f"{_told(entry)} is written for contract {contract}; this Plancha has {CONTRACT}"
        )
    return factory  # type: ignore[no-any-return]  # just checked, as far as one can


def create(group: str, name: str, options: Mapping[str, Any], site: Site) -> Any:
    """The plugin itself, made from its table.

    Raises `OptionsError` and `LoadError` as the plugin does, and `PluginError` for everything that
    `find` raises it for and for any other exception of the plugin's.
    """
    factory = find(group, name)
    try:
        return factory(options, site)
    except (OptionsError, LoadError):
        raise
    except Exception as error:
        told = _told(_only_one(group, name))
        raise PluginError(f"{told} failed when it was made: {_reason(error)}") from error


def _only_one(group: str, name: str) -> EntryPoint:
    installed = entry_points(group=group)
    found = [entry for entry in installed if entry.name == name]
    if len(found) == 1:
        return found[0]
    if found:
        several = " and ".join(f"{entry.value} of {_distribution(entry)}" for entry in found)
        raise PluginError(f'plugin "{name}" ({group}) is ambiguous: {several}; remove all but one')
    names = sorted({entry.name for entry in installed})
    near = get_close_matches(name, names, 1)
    hint = f'did you mean "{near[0]}"?' if near else f"installed are {', '.join(names) or 'none'}"
    raise PluginError(f"no plugin {shown(name)} ({group}) is installed; {hint}")


def _told(entry: EntryPoint) -> str:
    return (
        f'plugin "{entry.name}" ({entry.group}: {entry.value}, distribution {_distribution(entry)})'
    )


def _distribution(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else "?"


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _contract(factory: object, entry: EntryPoint) -> Any:
    """As the callable declares it, or else its module; without a word it is 0."""
    module = sys.modules.get(entry.module)
    return getattr(factory, "CONTRACT", getattr(module, "CONTRACT", FIRST_CONTRACT))


def _contract_if_imported(entry: EntryPoint) -> Any:
    module = sys.modules.get(entry.module)
    if module is None:
        return None
    return _contract(_attribute(module, entry.attr), entry)


def _attribute(module: object, path: str) -> object:
    for part in filter(None, path.split(".")):
        module = getattr(module, part, None)
    return module
