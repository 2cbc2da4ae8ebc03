"""Small plots of a few lines' height: one column a sample, the newest on the right."""

from collections.abc import Sequence

from rich.text import Text

from plancha_app.top.looks import Characters

EIGHTHS = 8
MOST_ABOVE = 3
"""Times the highest of the columns in front: so far up those behind are drawn."""

Values = Sequence[float | None]


def plot(
    values: Values,
    behind: Values | None,
    size: tuple[int, int],
    styles: tuple[str, str],
    characters: Characters,
) -> list[Text]:
    """Columns of `values` before columns of `behind`, which are higher, from zero on.

    What is behind is cut where `values` would become too low to be read. `size` is width and height
    in cells, `styles` of the two; None leaves a gap.
    """
    width, height = size
    front = _last(values, width)
    back = _last(behind, width) if behind and values else front
    top = min(_highest((*front, *back)), _highest(front) * MOST_ABOVE)
    heights = [
        (_eighths(near, top, height), _eighths(far, top, height))
        for near, far in zip(front, back, strict=True)
    ]
    lines = []
    for row in reversed(range(height)):
        line = Text(no_wrap=True)
        for near, far in heights:
            line.append(*_cell(near - row * EIGHTHS, far - row * EIGHTHS, styles, characters))
        lines.append(line)
    return lines


def _cell(near: int, far: int, styles: tuple[str, str], characters: Characters) -> tuple[str, str]:
    front, back = styles
    if near > 0:
        partial = near < EIGHTHS and far >= EIGHTHS and front != back
        return _rising(near, characters), f"{front} on {back}" if partial else front
    if far > 0:
        return _rising(far, characters), back
    return " ", ""


def _rising(eighths: int, characters: Characters) -> str:
    return characters.rising[min(eighths, EIGHTHS) - 1]


def _eighths(value: float | None, top: float, height: int) -> int:
    """At least one of what there is, so that little is not nothing."""
    if value is None or value <= 0 or top <= 0:
        return 0
    room = height * EIGHTHS - 1  # so that one plot does not touch the one above it
    return max(1, min(room, round(value / top * room)))


def _highest(values: Values) -> float:
    return max((value for value in values if value is not None), default=0.0)


def _last(values: Values, width: int) -> list[float | None]:
    last = list(values)[-width:] if width > 0 else []
    return [None] * (width - len(last)) + last
