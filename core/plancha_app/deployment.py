"""What a deployment file says: the kernel's settings, and each plugin's table untouched.

A plugin's table belongs to the plugin; only its key `plugin` is ours. Nothing is read from the
environment. Without a file everything is at its default, which the file `plugins.toml` repeats.
"""

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import attrs

from plancha.access import DEFAULT_TENANT, Access
from plancha.option_values import Check
from plancha.options import (
    OptionsError,
    Problem,
    at_least,
    between,
    power_of_two,
    shown,
    structure,
)
from plancha_app.tenant_tables import TenantTable, TierTable, tenant_problems, texts_problems
from plancha_app.tracing_table import TracingTable
from plancha_ledger.table import LedgerTable
from plancha_texts.options import TextsTable
from plancha_texts.retention import Policy


@attrs.frozen(kw_only=True)
class Model:
    """Which model, and what clients call it."""

    name: str = attrs.field(
        default="smollm2", validator=Check("of visible characters", str.isprintable)
    )
    """A built-in name, `hf:organisation/name`, or the path of a GGUF file or of a folder."""

    served_name: str | None = None
    """What `model` says in requests. Left out: `name`; of a path its last part."""

    public_prefixes: tuple[str, ...] = ()
    """Beginnings of prompts whose cached blocks all tenants may share."""

    @property
    def public_name(self) -> str:
        """The name in `GET /v1/models`: of a path its last part, of a hub name all but the hf:."""
        if self.served_name is not None:
            return self.served_name
        name = self.name.removeprefix("hf:")
        return name if name != self.name else Path(self.name).name


@attrs.frozen(kw_only=True)
class Batch:
    """How much is computed at once, and how much waits, at most."""

    max_sequences: int = attrs.field(default=64, validator=between(1, 4096))
    """Answers that are generated side by side."""

    max_batched_tokens: int = attrs.field(default=128, validator=between(1, 65536))
    """Prompt and output tokens that one step computes. Fewer make streams steadier, more make
    long prompts faster. At least `max_sequences` and `kv.block_size` together."""

    max_waiting: int = attrs.field(default=1024, validator=between(1, 1_000_000))
    """Sequences that may queue, of all tenants; beyond that requests get a 429."""

    inter_token_target_s: float = attrs.field(default=0.5, validator=at_least(0))
    """Prompts are held back so that a step with running answers takes no longer. 0: they are not.
    """

    queue_timeout_s: float = attrs.field(default=60.0, validator=at_least(0))
    """Who has not begun by then gets a 503. 0: no limit."""


@attrs.frozen(kw_only=True)
class Kv:
    """The KV cache, as far as executor and allocator must agree on it."""

    block_size: int = attrs.field(default=16, validator=power_of_two(8, 256))
    """Tokens that a block holds."""


@attrs.frozen(kw_only=True)
class Server:
    """The process itself, or its processes."""

    anonymous: str | None = None
    """The tenant of whoever calls without a key. Left out: nobody gets in without one, as soon as
    any tenant has one; until then everybody is the tenant `default`, and the server starts only
    where no other machine can reach it."""

    gateways: int = attrs.field(default=0, validator=between(0, 64))
    """Processes of their own that talk to clients, beside one that computes. 0: all in one."""

    drain_timeout_s: float = attrs.field(default=30.0, validator=at_least(0))
    """After SIGTERM, how long running answers may take to finish."""

    step_deadline_s: float = attrs.field(default=60.0, validator=at_least(0))
    """`/health/ready` says 503 while a step takes longer. 0: however long it takes."""

    hang_timeout_s: float = attrs.field(default=30.0, validator=at_least(0))
    """With `gateways`: a process whose event loop stands still for so long is ended and started
    again, however long a step may take. 0: never."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least that is logged."""

    log_format: Literal["auto", "console", "json"] = "auto"
    """`auto` is `console` on a terminal and `json` elsewhere."""


@attrs.frozen
class PluginTable:
    """A plugin by name, and the rest of its table, which only the plugin understands.

    `told` are those of the options that the command line put in the file's place.
    """

    plugin: str
    options: Mapping[str, Any] = attrs.field(factory=dict)
    told: Mapping[str, Any] = attrs.field(factory=dict, eq=False)


def plugin_table(table: Any) -> PluginTable:
    """`{plugin = "name", …}`. Raises `OptionsError`, or ValueError when it is no table."""
    if isinstance(table, PluginTable):
        return table
    if not isinstance(table, Mapping):
        raise ValueError("must be a table")
    name = table.get("plugin")
    if not isinstance(name, str):
        missing = "" if "plugin" in table else "missing; "
        right = f"{missing}must be text, the name of a plugin"
        value = None if missing else shown(name)
        raise OptionsError((Problem(key="plugin", value=value, right=right),))
    return PluginTable(name, {key: value for key, value in table.items() if key != "plugin"})


def transport_tables(tables: Any) -> Mapping[str, PluginTable]:
    """Any number of transports by name; the name is also the plugin's unless `plugin` says else."""
    if not isinstance(tables, Mapping) or not tables:
        raise ValueError("must hold one table per transport, such as [transport.http]")
    found: dict[str, PluginTable] = {}
    problems: list[Problem] = []
    for name, table in tables.items():
        try:
            named = {"plugin": name, **table} if isinstance(table, Mapping) else table
            found[name] = plugin_table(named)
        except OptionsError as error:
            problems.extend(attrs.evolve(each, key=f"{name}.{each.key}") for each in error.problems)
        except ValueError as error:
            right = f"{error}; each transport has its own, such as [transport.http]"
            problems.append(Problem(key=name, value=shown(table, name), right=right))
    if problems:
        raise OptionsError(tuple(problems))
    return found


@attrs.frozen(kw_only=True)
class Deployment:
    """All of a file: its own settings checked, the plugins' options not yet."""

    model: Model = attrs.field(factory=Model)
    batch: Batch = attrs.field(factory=Batch)
    kv: Kv = attrs.field(factory=Kv)
    scheduler: PluginTable = attrs.field(default=PluginTable("fair-queue"), converter=plugin_table)
    """Who is next, and who must give way."""

    allocator: PluginTable = attrs.field(default=PluginTable("paged"), converter=plugin_table)
    """Who holds which blocks of the KV cache."""

    executor: PluginTable = attrs.field(default=PluginTable("torch"), converter=plugin_table)
    """What computes, and with how much memory."""

    transport: Mapping[str, PluginTable] = attrs.field(
        factory=lambda: {"http": PluginTable("http")}, converter=transport_tables
    )
    """Doors, one table each; the table's name is also the plugin's, unless it says another."""

    server: Server = attrs.field(factory=Server)
    tenants: dict[str, TenantTable] = attrs.field(factory=dict)
    tiers: dict[str, TierTable] = attrs.field(factory=dict)
    texts: TextsTable = attrs.field(factory=TextsTable)
    ledger: LedgerTable | None = None
    tracing: TracingTable = attrs.field(factory=TracingTable)

    @property
    def access(self) -> Access:
        """Who may call, by the keys. While there are none and nobody is named: everybody."""
        keys = {key: name for name, table in self.tenants.items() for key in table.keys}
        everybody = None if keys else DEFAULT_TENANT
        models = {name: table.models for name, table in self.tenants.items()}
        return Access(
            keys=keys,
            anonymous=self.server.anonymous or everybody,
            models={name: names for name, names in models.items() if names is not None},
            operators=frozenset(name for name, each in self.tenants.items() if each.operator),
        )

    def beside(self, folder: Path) -> "Deployment":
        """The same with its paths seen from `folder`, in which its file lies."""
        ledger = None if self.ledger is None else self.ledger.beside(folder)
        return attrs.evolve(self, ledger=ledger, texts=self.texts.beside(folder))

    @property
    def retention(self) -> Policy:
        """What is kept of whose prompts and outputs."""
        return Policy({name: table.retention for name, table in self.tenants.items()})

    def listening_at(self, host: str | None, port: int | None) -> "Deployment":
        """The same, with the HTTP door elsewhere. Raises ValueError when there is no such door."""
        given = {"host": host, "port": port}
        changes = {key: value for key, value in given.items() if value is not None}
        if not changes:
            return self
        if "http" not in self.transport:
            raise ValueError(f"--{' --'.join(changes)}: there is no [transport.http] to listen at")
        http = self.transport["http"]
        http = attrs.evolve(http, options={**http.options, **changes}, told=changes)
        return attrs.evolve(self, transport={**self.transport, "http": http})


class DeploymentError(Exception):
    """A deployment that cannot start; `problems` are all its mistakes, one line each."""

    def __init__(self, source: str, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join((source, *problems)))
        self.source = source
        self.problems = problems


def parse(path: Path) -> Mapping[str, Any]:
    """A file's tables, unchecked. Raises `DeploymentError` when it cannot be read or parsed."""
    source = str(path)
    try:
        text = path.read_bytes().decode()
        tables = tomllib.loads(text)
        wide = tuple(_wide_numbers(tables, ""))
    except OSError as error:
        raise DeploymentError(source, (f"cannot be read: {error.strerror}",)) from None
    except UnicodeDecodeError as error:
        raise DeploymentError(source, (f"is not UTF-8 text: {error.reason}",)) from None
    except RecursionError:
        raise DeploymentError(source, ("is nested too deeply",)) from None
    except tomllib.TOMLDecodeError as error:
        raise DeploymentError(source, (_syntax(error, text),)) from None
    except ValueError:  # Python reads no more digits than these
        digits = sys.get_int_max_str_digits()
        raise DeploymentError(source, (f"has a number of over {digits} digits",)) from None
    if wide:
        raise DeploymentError(source, wide)
    return tables


def understand(tables: Mapping[str, Any]) -> tuple[Deployment, tuple[Problem, ...]]:
    """The deployment of those tables that are right, and every mistake of the others."""
    try:
        deployment = structure(tables, Deployment, "")
        return deployment, _across_tables(deployment)
    except OptionsError as error:
        wrong = {problem.key.partition(".")[0] for problem in error.problems}
        known = {field.name for field in attrs.fields(Deployment)} - wrong
        rest = {name: table for name, table in tables.items() if name in known}
        return structure(rest, Deployment, ""), error.problems


def _across_tables(deployment: Deployment) -> tuple[Problem, ...]:
    anonymous = deployment.server.anonymous
    problems = list(tenant_problems(deployment.tenants, deployment.tiers, anonymous))
    problems.extend(texts_problems(deployment.tenants, deployment.texts))
    batch = deployment.batch
    least = batch.max_sequences + deployment.kv.block_size
    if batch.max_batched_tokens < least:
        right = f"must be at least batch.max_sequences + kv.block_size = {least}"
        value = shown(batch.max_batched_tokens)
        problems.append(Problem(key="batch.max_batched_tokens", value=value, right=right))
    return tuple(problems)


def _wide_numbers(value: Any, key: str) -> Iterator[str]:
    """TOML asks for 64 bits of a whole number; Python's have any width and would break later."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _wide_numbers(inner, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _wide_numbers(inner, f"{key}[{index}]")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        yield f"{key}: must be a number that fits in 64 bits"


def _syntax(error: tomllib.TOMLDecodeError, text: str) -> str:
    """The parser's words with the line's key; never the value, which may be a secret."""
    place = re.search(r"at line (\d+)", str(error))
    if place is None:
        return str(error)
    line = text.splitlines()[int(place[1]) - 1]
    named = re.match(r"""\s*(\[[^=]*|[\w."'-]+\s*=)""", line)
    return f"{error}: {named[1].rstrip('= ')}" if named else str(error)
