"""`plancha serve` and `plancha check`."""

import os
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from plancha_app.commands.help_page import Flag, epilogue
from plancha_app.complaints import Mistake, tell_mistakes
from plancha_app.machine_readable import show_json

serve = App(
    name="serve",
    help_epilogue=epilogue(
        ("plancha serve", "plugins.toml here, or a small model"),
        ("plancha serve -m hf:Qwen/Qwen3-0.6B", "another model, without a file"),
        ("plancha serve my.toml", "a deployment of your own"),
        ("plancha serve my.toml --port 0", "on a free port, which is told"),
        codes="1 it could not serve; 2 mistakes in the file or mistyped.",
    ),
)

check = App(
    name="check",
    help_epilogue=epilogue(
        ("plancha check my.toml", ""),
        ("plancha check my.toml --json", "for an editor or a pipeline"),
        codes="2 there are mistakes; 130 interrupted.",
    ),
)


@serve.default
def run(
    file: Path | None = None,
    /,
    *,
    model: Annotated[str | None, Parameter(name=("--model", "-m"))] = None,
    host: str | None = None,
    port: int | None = None,
) -> int:
    """Load the model and answer requests until SIGINT or SIGTERM.

    What is being answered then is answered to its end; a second signal ends it
    at once. SIGHUP reads the file again: keys, weights and limits change without
    dropping a stream.

    Parameters
    ----------
    file
        The deployment; without one, plugins.toml in this folder, or else the defaults.
    model
        Without a file, serve this one: a built-in name, hf:org/name, or a path.
    host
        Address to listen on, instead of what [transport.http] says.
    port
        Port to listen on, instead of what [transport.http] says; 0 takes a free one.
    """
    from plancha_app.assembly import prepare
    from plancha_app.deployment import DeploymentError
    from plancha_app.serve import serve_until_told

    if file is not None and model is not None:
        raise Mistake("--model is for a server without a file; in a file it is name in [model]")
    if file is not None and _is_like_a_model(file):
        raise Mistake(f"{file} is no deployment's file; if it is a model, type --model {file}")
    try:
        source, deployment = prepare(file, model=model, host=host, port=port)
    except DeploymentError as error:
        return tell_mistakes(error.source, error.problems)
    code = serve_until_told(source, deployment)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code)  # the executor's thread cannot be interrupted and would be waited for


def _is_like_a_model(file: Path) -> bool:
    is_another = file.suffix != ".toml" and not file.exists()
    return is_another or file.suffix == ".gguf" or file.is_dir()


@check.default
def validate(file: Path | None = None, /, *, json: Flag = False) -> int:
    """Find every mistake in a deployment file, without loading a model.

    Parameters
    ----------
    file
        The deployment; without one, plugins.toml in this folder, or else the defaults.
    json
        Print an object with the file and its mistakes.
    """
    from plancha_app.assembly import prepare
    from plancha_app.deployment import DeploymentError

    try:
        source, _ = prepare(file)
    except DeploymentError as error:
        if json:
            show_json({"source": error.source, "right": False, "mistakes": error.problems})
            return 2
        return tell_mistakes(error.source, error.problems)
    if json:
        show_json({"source": source, "right": True, "mistakes": []})
    else:
        print(f"{source}: right")
    return 0
