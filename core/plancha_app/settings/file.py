"""A deployment's file with every setting in it, commented out at its default: one to begin with."""

from collections.abc import Iterator
from textwrap import wrap

from plancha_app.settings.tables import Table, tables

WIDTH = 95

HEAD = """\
# Every setting, commented out at its default. `plancha check FILE` says whether a file is right.
# `kill -HUP` changes what is marked (reload) while the server runs; all else needs a restart.

"""


def file(header: str | None = None) -> str:
    """All tables, or those of one header ("batch", "tenants"). "" if there is none."""
    wanted = [each for each in tables() if header in (None, each.header, _first(each.header))]
    body = "\n".join("\n".join(_table(each)) + "\n" for each in wanted)
    return HEAD + body if header is None else body


def headers() -> list[str]:
    """What `file` takes."""
    return list(dict.fromkeys(_first(table.header) for table in tables()))


def _first(header: str) -> str:
    return header.partition(".")[0]


def _table(table: Table) -> Iterator[str]:
    if table.plugin:
        yield from _comment(f'Under plugin = "{table.plugin}": {table.text}')
    else:
        yield f"{'# ' if table.optional else ''}[{table.header}]"
        yield from _comment(table.text)
    for key in table.keys:
        yield "#"
        yield from _comment(f"{key.text} Takes {key.takes}.{' (reload)' if key.live else ''}")
        line = f"{key.name} = {key.default or ''}".rstrip()
        yield line if key.name == "plugin" else f"# {line}"


def _comment(text: str) -> Iterator[str]:
    return (f"#   {line}" for line in wrap(text, WIDTH))
