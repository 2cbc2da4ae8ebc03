"""The KV pool as a map: one sign for so many blocks, in the order they lie."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from rich.text import Text

from plancha_app.top.looks import FAINT, OTHERS, Characters, Hues
from plancha_app.top.view import Kv, View

FREE, CACHED, OTHER, HELD = 0, 1, 2, 3
"""The server's codes; from `HELD` on a pair for each tenant: held by one of its sequences, or by
several."""


def block_map(view: View, size: tuple[int, int], hues: Hues, characters: Characters) -> list[Text]:
    """So many columns and rows of signs; each shows what most of its blocks are."""
    width, height = size
    names = [tenant.name for tenant in view.tenants]
    if view.scope != "all":
        names = names[:1]
    cells = [_sign(code, names, hues, characters) for code in codes(view.kv, width * height)]
    lines = []
    for row in range(height):
        line = Text(no_wrap=True)
        for sign, style in cells[row * width : (row + 1) * width]:
            line.append(sign, style)
        lines.append(line)
    return lines


def codes(kv: Kv, cells: int) -> list[int]:
    """The commonest code of each cell's blocks; of fewer blocks than cells, each has several."""
    told = list(_expanded(kv.map))
    if not told or cells < 1:
        return []
    bounds = [number * len(told) // cells for number in range(cells + 1)]
    return [_commonest(told[begin : max(end, begin + 1)]) for begin, end in pairwise(bounds)]


def _expanded(runs: Sequence[int]) -> Iterator[int]:
    for code, times in zip(runs[::2], runs[1::2], strict=False):
        for _ in range(times):
            yield code


def _commonest(found: Sequence[int]) -> int:
    """Of equals, the one that is more in use."""
    counts = Counter(found)
    return max(counts, key=lambda code: (counts[code], code))


def _sign(code: int, names: Sequence[str], hues: Hues, characters: Characters) -> tuple[str, str]:
    if code == FREE:
        return characters.free, FAINT
    if code == CACHED:
        return characters.cached, FAINT
    number, shared = divmod(code - HELD, 2)
    if code == OTHER or number >= len(names):
        return characters.others, OTHERS
    name = names[number]
    return hues.sign(name, characters.shared if shared else characters.held), hues.of(name)
