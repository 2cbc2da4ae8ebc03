"""The command line. Each command imports what it needs, so that `plancha --help` is quick."""

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

from cyclopts import App, CycloptsError, Parameter
from cyclopts.validators import Number

from plancha_app.bench.job import Job
from plancha_app.ledger_commands import ledger

app = App(
    name="plancha",
    version=lambda: version("plancha"),
    help="Serve large language models: continuous batching, paged KV cache, plugins.",
)

MISTAKE = 2
"""Exit code for what the operator wrote and can put right."""

INTERRUPTED = 130
"""Exit code after SIGINT, by the shell's convention."""


def main(words: Sequence[str] | None = None) -> None:
    """The `plancha` command, with the process's arguments unless given others."""
    try:
        app(sys.argv[1:] if words is None else words, exit_on_error=False)
    except CycloptsError:  # told by then
        sys.exit(MISTAKE)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


@app.command
def serve(file: Path | None = None, /, *, host: str | None = None, port: int | None = None) -> int:
    """Load the model and answer requests until SIGINT or SIGTERM.

    Parameters
    ----------
    file
        The deployment; without one, plugins.toml in this folder, or else the defaults.
    host
        Address to listen on, instead of what [transport.http] says.
    port
        Port to listen on, instead of what [transport.http] says; 0 takes a free one.
    """
    from plancha_app.assembly import prepare
    from plancha_app.deployment import DeploymentError
    from plancha_app.serve import serve_until_told

    try:
        source, deployment = prepare(file, host=host, port=port)
    except DeploymentError as error:
        return _mistakes(error.source, error.problems)
    code = serve_until_told(source, deployment)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the executor's thread cannot be interrupted and would be waited for


@app.command
def check(file: Path | None = None, /) -> int:
    """Validate a deployment file and its plugins' options, without loading a model.

    Parameters
    ----------
    file
        The deployment; without one, plugins.toml in this folder, or else the defaults.
    """
    from plancha_app.assembly import prepare
    from plancha_app.deployment import DeploymentError

    try:
        source, _ = prepare(file)
    except DeploymentError as error:
        return _mistakes(error.source, error.problems)
    print(f"{source}: right")
    return 0


@app.command
def plugins(file: Path | None = None, /) -> int:
    """List the installed plugins; load those that the deployment names, and no others.

    Parameters
    ----------
    file
        The deployment; without one, plugins.toml in this folder, or else the defaults.
    """
    from plancha_app.deployment import DeploymentError
    from plancha_app.listing import show_plugins

    try:
        return show_plugins(file)
    except DeploymentError as error:
        return _mistakes(error.source, error.problems)


app.command(ledger)

keys = App(name="keys", help="Make an API key, or the hash of one that there is.")
app.command(keys)


@keys.command
def new(tenant: str | None = None, /) -> int:
    """Print a new key once, and the line with its hash for the deployment file.

    Parameters
    ----------
    tenant
        Whose it will be: the NAME of [tenants.NAME].
    """
    from plancha_app.keys import show_new
    from plancha_app.tenant_tables import NAME_RIGHT, is_tenant_name

    if tenant is not None and not is_tenant_name(tenant):
        print(f"plancha: {tenant!a} is no tenant's name; it must be {NAME_RIGHT}", file=sys.stderr)
        return MISTAKE
    show_new(tenant)
    return 0


@keys.command(name="hash")
def hash_() -> int:
    """Print the hash of a key, read from stdin so that it shows in no list of processes."""
    from plancha_app.keys import show_hash

    return show_hash()


@app.command
def pull(model: str, /) -> int:
    """Fetch a model into the cache, so that a later start finds it there.

    Parameters
    ----------
    model
        A built-in name, hf:org/name, or a path, which is only checked.
    """
    from rich.console import Console

    from plancha.contracts import LoadError
    from plancha_engine import model_name
    from plancha_engine.report import ConsoleReport

    try:
        print(model_name.pull(model, ConsoleReport(Console(stderr=True))))
    except LoadError as error:
        print(f"plancha: {error}", file=sys.stderr)
        return 1
    return 0


@app.command
def bench(url: str, /, job: Annotated[Job | None, Parameter(name="*")] = None) -> int:
    """Put load on an OpenAI-compatible server and measure what comes back.

    Parameters
    ----------
    url
        Where the server is, such as http://127.0.0.1:8000.
    """
    from plancha_app.bench.command import run

    return run(url, job or Job())


selftest = App(name="selftest", help="Ask a running server to show what it promises.")
app.command(selftest)


@selftest.command
def isolation(
    url: str,
    /,
    *,
    key_file_a: Path,
    key_file_b: Path,
    characters: Annotated[int, Parameter(validator=Number(gte=1))] = 800,
    rounds: Annotated[int, Parameter(validator=Number(gte=1))] = 12,
    prefix: str = "",
) -> int:
    """Check that of two tenants neither can tell what the other asks. Exit code 1 if one can.

    Parameters
    ----------
    url
        Where the server is, such as http://127.0.0.1:8000.
    key_file_a
        A file that holds the one tenant's key, on which the load falls.
    key_file_b
        A file that holds the other's, who must be no operator.
    characters
        Of each prompt, random words; some blocks of the KV cache must be filled.
    rounds
        How often times are compared.
    prefix
        What every prompt begins with, such as a system prompt of yours.
    """
    from plancha_app.selftest.command import run
    from plancha_app.selftest.isolation import Trial

    trial = Trial(characters=characters, rounds=rounds, prefix=prefix)
    return run(url, key_file_a, key_file_b, trial)


def _mistakes(source: str, problems: tuple[str, ...]) -> int:
    count = len(problems)
    print(f"{source}: {count} mistake{'s' if count > 1 else ''}", file=sys.stderr)
    for problem in problems:
        print(f"  {problem}", file=sys.stderr)
    return MISTAKE
