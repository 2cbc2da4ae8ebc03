"""Plugins for a deployment: made from their own tables, each by its own name."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from plancha.contracts import Geometry, LoadError, Site, Tenant
from plancha.gateway import Gateway
from plancha.messages import Reload
from plancha.options import OptionsError, locate
from plancha.plugins import GROUPS, PluginError, create
from plancha_app.deployment import Deployment, DeploymentError, PluginTable, parse, understand
from plancha_app.tracing_table import tracing_problems
from plancha_ledger.opening import problems_of
from plancha_texts.hashing import Secrets
from plancha_texts.keeper import TextKeeper

DEFAULT_FILE = Path("plugins.toml")
BUILT_IN = "built-in defaults"

STAND_IN = Geometry(blocks=4096, context_length=4096, vocabulary=4096, stop_ids=(), host_blocks=64)
"""What plugins are checked against while no model is loaded."""


def prepare(
    path: Path | None,
    *,
    model: str | None = None,
    host: str | None = None,
    port: int | None = None,
) -> tuple[str, Deployment]:
    """A deployment with nothing wrong in it, and where it came from.

    Without a path: plugins.toml here, or else the defaults. Every plugin that it names is imported
    and made once from its options; no model is loaded. `host` and `port` go before what
    [transport.http] says; with a `model` there is no file, and the rest are the defaults. Raises
    `DeploymentError` with every mistake.
    """
    source, tables = _tables(path) if model is None else (BUILT_IN, {"model": {"name": model}})
    deployment, problems = understand(tables)
    told = [str(problem) for problem in problems]
    try:
        deployment = deployment.listening_at(host, port)
    except ValueError as error:
        told.append(str(error))
    told.extend(plugin_problems(deployment))
    told.extend(openness_problems(deployment))
    deployment = _beside(source, deployment)
    told.extend(ledger_problems(deployment))
    told.extend(f"tracing.{problem}" for problem in tracing_problems(deployment.tracing))
    if told:
        raise DeploymentError(source, tuple(told))
    return source, deployment


def choose(path: Path | None) -> tuple[str, Deployment]:
    """As `prepare`, without a look at the plugins."""
    source, tables = _tables(path)
    deployment, problems = understand(tables)
    if problems:
        raise DeploymentError(source, tuple(map(str, problems)))
    return source, _beside(source, deployment)


def _beside(source: str, deployment: Deployment) -> Deployment:
    return deployment if source == BUILT_IN else deployment.beside(Path(source).parent)


def _tables(path: Path | None) -> tuple[str, Mapping[str, Any]]:
    if path is None and not DEFAULT_FILE.exists():
        return BUILT_IN, {}
    path = path or DEFAULT_FILE
    return str(path), parse(path)


def plugin_problems(deployment: Deployment) -> Iterator[str]:
    """What the plugins find wrong with their own tables, and what is wrong with the plugins."""
    site = make_site(deployment, model=deployment.model.name, vocabulary=STAND_IN.vocabulary)
    for section, table in plugin_tables(deployment).items():
        try:
            make(section, table, attrs.evolve(site, geometry=STAND_IN))
        except OptionsError as error:
            for problem in error.problems:
                yield str(locate(problem.moved(section), Deployment))
        except (PluginError, LoadError) as error:
            yield f"{section}.plugin: {error}"


def openness_problems(deployment: Deployment) -> Iterator[str]:
    """Doors that others than this machine reach, while nobody needs a key and nobody said so."""
    if deployment.access.keys or deployment.server.anonymous is not None:
        return
    site = make_site(deployment, model=deployment.model.name, vocabulary=STAND_IN.vocabulary)
    for name, table in deployment.transport.items():
        try:
            transport = make(f"transport.{name}", table, site)
        except (OptionsError, PluginError, LoadError):
            continue  # told by `plugin_problems`
        if not getattr(transport, "loopback_only", False):
            yield (
                f"transport.{name}: others than this machine can reach it, and nobody needs a key. "
                "Either give keys to tenants (`plancha keys new NAME` makes one), or name the "
                'tenant that everybody is: anonymous = "NAME" in [server], with a [tenants.NAME]'
            )


def ledger_problems(deployment: Deployment) -> Iterator[str]:
    """What can be seen to be wrong with [ledger] without opening it."""
    if deployment.ledger is not None:
        yield from (f"ledger.{problem}" for problem in problems_of(deployment.ledger))


def plugin_tables(deployment: Deployment) -> dict[str, PluginTable]:
    """Every plugin the deployment names, by the path of its table."""
    transports = {f"transport.{name}": table for name, table in deployment.transport.items()}
    return {
        "scheduler": deployment.scheduler,
        "allocator": deployment.allocator,
        "executor": deployment.executor,
        **transports,
    }


def make(section: str, table: PluginTable, site: Site) -> Any:
    """The plugin of one table. Raises what `plancha.plugins.create` raises."""
    return create(GROUPS[section.partition(".")[0]], table.plugin, table.options, site)


def make_site(
    deployment: Deployment,
    *,
    model: str,
    vocabulary: int,
    plain_bytes: Callable[[int], bytes] | None = None,
    shared_ports: bool = False,
) -> Site:
    """What the deployment fixes for its plugins; `model` is the checkpoint's path."""
    return Site(
        max_sequences=deployment.batch.max_sequences,
        max_batched_tokens=deployment.batch.max_batched_tokens,
        max_waiting=deployment.batch.max_waiting,
        block_size=deployment.kv.block_size,
        model=model,
        vocabulary=vocabulary,
        plain_bytes=plain_bytes,
        shared_ports=shared_ports,
        tenants=_tenants(deployment),
        inter_token_target_s=deployment.batch.inter_token_target_s,
        queue_timeout_s=deployment.batch.queue_timeout_s,
        ttft_targets_s=_ttft_targets_s(deployment),
    )


def make_texts(deployment: Deployment) -> TextKeeper | None:
    """What keeps tenants' texts; None when there is no place for them, and so nothing to keep."""
    places = deployment.texts
    if places.path is None:
        return None
    secrets = None if places.secrets is None else Secrets(places.secrets)
    return TextKeeper(places.path, secrets, deployment.retention)


def make_gateway(deployment: Deployment, texts: TextKeeper | None = None) -> Gateway:
    """The half that talks to clients, before there is a worker."""
    return Gateway(
        deployment.model.public_name,
        deployment.model.public_prefixes,
        deployment.access,
        texts=texts,
        step_deadline_s=deployment.server.step_deadline_s,
    )


def make_reload(deployment: Deployment) -> Reload:
    """What of a deployment a worker takes over while it runs."""
    return Reload(
        tenants=_tenants(deployment),
        max_waiting=deployment.batch.max_waiting,
        queue_timeout_s=deployment.batch.queue_timeout_s,
        ttft_targets_s=_ttft_targets_s(deployment),
    )


def _tenants(deployment: Deployment) -> dict[str, Tenant]:
    return {
        name: Tenant(
            weight=table.weight,
            tier=table.tier,
            max_running=table.max_running,
            max_waiting=table.max_waiting,
            tokens_per_minute=table.tokens_per_minute,
        )
        for name, table in deployment.tenants.items()
    }


def _ttft_targets_s(deployment: Deployment) -> dict[int, float]:
    targets = {int(number): table.ttft_target_s for number, table in deployment.tiers.items()}
    return {tier: target for tier, target in targets.items() if target is not None}
