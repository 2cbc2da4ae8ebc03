"""Tables without lines: each row is one line, whatever is in it."""

from rich.table import Table

from plancha_app.top.looks import FAINT, Characters


def table(characters: Characters, *columns: tuple[str, int]) -> Table:
    """Headings and widths; a negative width is of a column that is flush right."""
    found = Table(
        box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style=FAINT, show_edge=False
    )
    for heading, width in columns:
        found.add_column(
            heading,
            width=abs(width),
            justify="right" if width < 0 else "left",
            no_wrap=True,
            overflow="ellipsis" if characters.more else "crop",
        )
    return found
