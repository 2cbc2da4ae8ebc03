"""`plancha plugins`."""

from pathlib import Path

from cyclopts import App

from plancha_app.commands.help_page import Flag, epilogue
from plancha_app.complaints import tell_mistakes

plugins = App(
    name="plugins",
    help_epilogue=epilogue(
        ("plancha plugins", ""),
        ("plancha plugins my.toml --json", ""),
        codes="1 a named plugin does not load; 2 mistakes in the file; 130 interrupted.",
    ),
)


@plugins.default
def show(file: Path | None = None, /, *, json: Flag = False) -> int:
    """List the installed plugins, and whether those in use load.

    Only those that the deployment names are loaded.

    Parameters
    ----------
    file
        The deployment; without one, plugins.toml in this folder, or else the defaults.
    json
        Print an object with the plugins and what keeps named ones from loading.
    """
    from plancha_app.deployment import DeploymentError
    from plancha_app.listing import show_plugins

    try:
        return show_plugins(file, as_json=json)
    except DeploymentError as error:
        return tell_mistakes(error.source, error.problems)
