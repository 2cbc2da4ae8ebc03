"""How things look: a colour for each tenant, and the characters that a terminal can show."""

import attrs

TENANTS = (
    "#e67f3f", "#2aa8a5", "#8b7fe0", "#c4a43a", "#cf6aa5", "#4aa0dc", "#68b25a", "#a68d77",
)  # fmt: skip
"""The web page's hues, in between its light and its dark ones."""

OUTPUT, PROMPT, FIRST, INTER = "#4aa0dc", "#8b7fe0", "#e67f3f", "#2aa8a5"
WORST = "grey46"  # neither black nor white to a terminal of either
GOOD, WARNING, BAD = "#68b25a", "#c4a43a", "#d9534f"
FAINT = "grey42"
OTHERS = "grey58"
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@attrs.frozen(kw_only=True)
class Characters:
    """What things are drawn with."""

    rising: str  # from an eighth to a full cell
    held: str
    shared: str
    cached: str
    others: str
    free: str
    prefill: str
    rule: str
    dot: str
    full: str
    more: str  # for what is cut off; "" where rich's own cannot be shown


UNICODE = Characters(
    rising="▁▂▃▄▅▆▇█", held="■", shared="▣", cached="▢", others="▨", free="·",
    prefill="▒", rule="─", dot="·", full="█", more="…",
)  # fmt: skip
ASCII = Characters(
    rising=".,:;+*%#", held="#", shared="@", cached="o", others="x", free=".",
    prefill=":", rule="-", dot="-", full="#", more="",
)  # fmt: skip


class Hues:
    """A tenant keeps its colour, and its letter where there are no colours."""

    def __init__(self, *, coloured: bool = True) -> None:
        self._numbers: dict[str, int] = {}
        self.coloured = coloured

    def of(self, tenant: str) -> str:
        """For rich."""
        return TENANTS[self._number(tenant) % len(TENANTS)]

    def letter(self, tenant: str) -> str:
        """One of the alphabet's."""
        return LETTERS[self._number(tenant) % len(LETTERS)]

    def sign(self, tenant: str, drawn: str) -> str:
        """What stands for it: as drawn if colours tell who it is, else its letter."""
        return drawn if self.coloured else self.letter(tenant)

    def _number(self, tenant: str) -> int:
        return self._numbers.setdefault(tenant, len(self._numbers))
