"""`plancha config`."""

from cyclopts import App

from plancha_app.commands.help_page import epilogue
from plancha_app.complaints import Mistake

config = App(
    name="config",
    help_epilogue=epilogue(
        ("plancha config > my.toml", "a file to fill in: all of it, commented out"),
        ("plancha config batch", "what [batch] takes"),
        codes="2 there is no such table; 130 interrupted.",
    ),
)


@config.default
def show(table: str | None = None, /) -> int:
    """Print every setting: what it is, what it takes, and its default.

    Parameters
    ----------
    table
        Print this one alone, such as batch, tenants or transport.http.
    """
    from plancha_app.settings.file import file, headers

    text = file(None if table is None else table.strip("[]"))
    if not text:
        raise Mistake(f"there is no table {table!a}; there are {', '.join(headers())}")
    print(text, end="")
    return 0
