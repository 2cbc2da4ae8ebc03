"""Every table and key of a deployment's file, with what it takes and what it means."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import attrs

from plancha.option_values import UNITS, Size
from plancha.options import requirement
from plancha_allocators.contiguous import ContiguousOptions
from plancha_allocators.paged import PagedOptions
from plancha_allocators.paged_swap import PagedSwapOptions
from plancha_app.deployment import Deployment, PluginTable
from plancha_app.reloading import LIVE_KEYS, LIVE_TABLES
from plancha_app.settings.field_texts import class_text, field_texts
from plancha_engine.options import TorchOptions
from plancha_schedulers.fcfs import FcfsOptions
from plancha_schedulers.prices import Prices
from plancha_schedulers.priority_preempt import PriorityPreemptOptions
from plancha_transports.options import HttpOptions

PLUGINS: dict[str, dict[str, type]] = {
    "scheduler": {
        "fair-queue": Prices,
        "priority-preempt": PriorityPreemptOptions,
        "fcfs": FcfsOptions,
    },
    "allocator": {
        "paged": PagedOptions,
        "paged-swap": PagedSwapOptions,
        "contiguous": ContiguousOptions,
    },
    "executor": {"torch": TorchOptions},
    "transport": {"http": HttpOptions},
}
"""Options of the built-in plugins by table and name, in the order in which they are told."""

NAMED = {"tenants": "tenants.NAME", "tiers": "tiers.N", "transport": "transport.http"}
"""Tables of tables, as one of those inside is called."""


@attrs.frozen(kw_only=True)
class Key:
    """One setting. `default` is as TOML writes it; None: left out it means what `text` says."""

    name: str
    default: str | None
    required: bool
    takes: str
    text: str
    live: bool  # whether SIGHUP changes it while the server runs


@attrs.frozen(kw_only=True)
class Table:
    """The settings that stand in one table, `header` without its brackets.

    `plugin`: the table is that built-in plugin's, if it is the one that the table names.
    `optional`: that it is there says something already, or it needs a name of its own.
    """

    header: str
    text: str
    keys: tuple[Key, ...]
    plugin: str | None = None
    optional: bool = False


def tables() -> Iterator[Table]:
    """All of them, in the order of `Deployment`."""
    texts = field_texts(Deployment)
    for field in attrs.fields(attrs.resolve_types(Deployment)):
        header = NAMED.get(field.name, field.name)
        if field.name in PLUGINS:
            yield _naming(header, texts[field.name], field.default)
            for plugin, cls in PLUGINS[field.name].items():
                yield _table(header, cls, plugin)
        else:
            table = _table(header, _inside(field.type))
            optional = field.default is None or header in ("tenants.NAME", "tiers.N")
            yield attrs.evolve(table, optional=optional)


def _naming(header: str, text: str, default: Any) -> Table:
    """The key that says which plugin a table belongs to."""
    name = default.plugin if isinstance(default, PluginTable) else "http"
    key = Key(
        name="plugin",
        default=json.dumps(name),
        required=False,
        takes="the name of an installed plugin, as `plancha plugins` lists them",
        text="Whose table it is; all other keys in it are the plugin's own.",
        live=False,
    )
    return Table(header=header, text=text, keys=(key,))


def _table(header: str, cls: type, plugin: str | None = None) -> Table:
    texts = field_texts(cls)
    keys = tuple(
        Key(
            name=field.name,
            default=_toml(field.default, field.type),
            required=field.default is attrs.NOTHING,
            takes=_units(field.name, requirement(field)),
            text=texts.get(field.name, ""),
            live=header.partition(".")[0] in LIVE_TABLES or f"{header}.{field.name}" in LIVE_KEYS,
        )
        for field in attrs.fields(attrs.resolve_types(cls))
    )
    return Table(header=header, text=class_text(cls), keys=keys, plugin=plugin)


def _inside(wanted: Any) -> type:
    """The attrs class of a table: itself, or what is optional, or what a table of tables holds."""
    if isinstance(wanted, type) and attrs.has(wanted):
        return wanted
    (found,) = (part for part in get_args(wanted) if isinstance(part, type) and attrs.has(part))
    return found


def _units(name: str, takes: str) -> str:
    if not name.endswith("_s"):
        return takes
    return takes.replace("a number of", "seconds,").replace("a number", "seconds")


def _toml(value: Any, wanted: Any) -> str | None:
    if value is None or value is attrs.NOTHING:
        return None
    if wanted is Size:
        return json.dumps(_size(value)) if value else "0"
    if isinstance(value, float):
        return f"{value:g}"
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)


def _size(value: int) -> str:
    unit = max((u for u in UNITS if value % UNITS[u] == 0), key=UNITS.__getitem__)
    return f"{value // UNITS[unit]}{unit}"
