"""A deployment's file, read again while the server runs: all of it takes effect, or nothing."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import structlog

from plancha.messages import Reload
from plancha.options import shown
from plancha_app.assembly import choose, make_reload, openness_problems
from plancha_app.deployment import Deployment, DeploymentError, PluginTable
from plancha_app.logs import set_level

log = structlog.get_logger()

LIVE_TABLES = ("tenants", "tiers")
LIVE_KEYS = frozenset(
    {
        "batch.max_waiting",
        "batch.queue_timeout_s",
        "server.anonymous",
        "server.log_level",
    }
)
UNSET = object()


def reloaded(running: Deployment, path: Path | None) -> tuple[Deployment, Reload]:
    """What the file says now, with what the command line said, and what the worker must know of it.

    `path` is as for `assembly.choose`. Raises `DeploymentError` with every reason when it cannot
    take the place of `running`: it has mistakes, or something changed that needs a restart.
    """
    source, deployment = choose(path)
    http = running.transport.get("http")
    told = http.told if http is not None else {}
    try:
        deployment = deployment.listening_at(told.get("host"), told.get("port"))
    except ValueError as error:
        raise DeploymentError(source, (str(error),)) from None
    problems = (*_fixed_changes(running, deployment), *openness_problems(deployment))
    if problems:
        raise DeploymentError(source, problems)
    return deployment, make_reload(deployment)


def reread(running: Deployment, path: Path | None) -> tuple[Deployment, Reload] | None:
    """As `reloaded`, with the log level in force; None, and the reasons in the log, if it cannot.

    Raises nothing: a bad file, or a plugin that fails over it, is no reason to end what runs.
    """
    try:
        deployment, reload = reloaded(running, path)
    except DeploymentError as error:
        log.error("reload_refused", source=error.source, problems=error.problems)
        return None
    except Exception:
        log.exception("reload_failed")
        return None
    log.info("reloaded", changed=changed_keys(running, deployment))
    set_level(deployment.server.log_level)
    return deployment, reload


def changed_keys(before: Deployment, after: Deployment) -> list[str]:
    """The paths of all keys that differ, also those at their defaults."""
    old, new = dict(_flat(before)), dict(_flat(after))
    paths = dict.fromkeys((*old, *new))
    return [path for path in paths if old.get(path, UNSET) != new.get(path, UNSET)]


def _fixed_changes(running: Deployment, deployment: Deployment) -> Iterator[str]:
    old, new = dict(_flat(running)), dict(_flat(deployment))
    for path in changed_keys(running, deployment):
        if path in LIVE_KEYS or path.partition(".")[0] in LIVE_TABLES:
            continue
        before, after = (_told(path, each.get(path, UNSET)) for each in (old, new))
        yield f"{path}: changed from {before} to {after}; needs a restart"


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every key by its full path; a list is one value."""
    if isinstance(value, PluginTable):
        value = {"plugin": value.plugin, **value.options}
    elif attrs.has(type(value)):
        value = {field.name: getattr(value, field.name) for field in attrs.fields(type(value))}
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flat(inner, f"{path}.{name}" if path else name)
    else:
        yield path, value


def _told(path: str, value: Any) -> str:
    return "nothing" if value is UNSET or value is None else shown(value, path)
