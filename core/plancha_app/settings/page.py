"""`docs/configuration.md`: every setting, as a page.

`python -m plancha_app.settings.page` prints it, `make docs` writes it, a test compares it.
"""

from collections.abc import Iterable, Iterator

from plancha_app.settings.tables import Key, Table, tables

HEAD = """\
# Configuration

A deployment is one TOML file. `plancha serve FILE` reads it; without FILE, `plugins.toml` of the
folder that it is started in, and without that everything is at the defaults below.
`plancha check FILE` tells every mistake in it at once. An unknown key is a mistake.
`plancha config` prints what is below as a file to fill in.

- Times are in seconds, as names that end in `_s` say. Sizes are whole numbers of bytes, or text
  with a unit: `kB`, `MB`, `GB`, `TB` (powers of 1,000), `KiB`, `MiB`, `GiB`, `TiB` (of 1,024).
- *Reload*: what `kill -HUP` changes while the server runs, without touching a stream. All else
  needs a restart; a file in which anything else has changed is refused as a whole, and the log
  says why.
- A plugin's table is its own. What plugins of others take, their own documentation says.

This page is made from the definitions of the settings, by `make docs`.
"""

COLUMNS = """
| key | default | takes | what it is | reload |
| --- | --- | --- | --- | --- |
"""


def page() -> str:
    """The whole page, in Markdown."""
    return HEAD + "".join(_section(table) for table in tables())


def _section(table: Table) -> str:
    title = f"### `{table.plugin}`" if table.plugin else f"## `[{table.header}]`"
    rows = "".join(_rows(table.keys))
    return f"\n{title}\n\n{table.text}\n{COLUMNS if rows else ''}{rows}"


def _rows(keys: Iterable[Key]) -> Iterator[str]:
    for key in keys:
        default = f"`{key.default}`" if key.default is not None else ""
        live = "at once" if key.live else ""
        cells = (
            f"`{key.name}`",
            "must be given" if key.required else default,
            key.takes,
            key.text,
            live,
        )
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


if __name__ == "__main__":
    print(page(), end="")
