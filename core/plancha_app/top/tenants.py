"""The tenants: who runs, who waits and for how long, and what each of them gets."""

from rich.table import Table
from rich.text import Text

from plancha_app.sizes import count_text, seconds_text
from plancha_app.top.history import History
from plancha_app.top.looks import FAINT, WARNING, Characters, Hues
from plancha_app.top.tables import table
from plancha_app.top.view import Quantiles, TenantRow, View

QUEUE = 8
WIDE = 118
"""From so many columns on there is room for the worst beside the median."""


def tenants(
    view: View, history: History, size: tuple[int, int], hues: Hues, characters: Characters
) -> Table:
    """Who does most first, in so many lines with the heading's; the last tells of those left."""
    width, rows = size
    wide = width >= WIDE
    times = (("first p50", -9), ("p99", -8), ("between", -9), ("p99", -8))
    found = table(
        characters,
        ("tenant", 24 if wide else 15), ("tier", -4), ("run", -4), ("wait", -5),
        ("queue", QUEUE), ("longest", -8), ("blocks", -7), ("tok/s", -6),
        *(times if wide else (("first", -7), ("between", -7))),
    )  # fmt: skip
    longest = max((tenant.waiting for tenant in view.tenants), default=0)
    ranked = sorted(view.tenants, key=lambda each: _rank(each, history))
    room = rows - 1
    shown = ranked if len(ranked) <= room else ranked[: room - 1]
    for tenant in shown:
        found.add_row(
            Text(tenant.name, hues.of(tenant.name)),
            str(tenant.tier),
            str(tenant.running),
            str(tenant.waiting + tenant.paused),
            _bar(tenant.waiting, longest, characters),
            seconds_text(tenant.longest_wait_s) if tenant.waiting else "",
            count_text(tenant.blocks),
            count_text(history.tenants_per_s.get(tenant.name, 0.0)),
            *_told(tenant.first_token, wide),
            *_told(tenant.inter_token, wide),
        )
    if len(shown) < len(ranked):
        found.add_row(Text(f"and {len(ranked) - len(shown)} more", FAINT))
    return found


def _rank(tenant: TenantRow, history: History) -> tuple[bool, float, str]:
    busy = tenant.running or tenant.waiting or tenant.paused
    return not busy, -history.tenants_per_s.get(tenant.name, 0.0), tenant.name


def _told(times: Quantiles, wide: bool) -> list[str]:
    return [seconds_text(times.p50_s), *([seconds_text(times.p99_s)] if wide else [])]


def _bar(waiting: int, longest: int, characters: Characters) -> Text:
    """How long its queue is beside the longest."""
    if not waiting:
        return Text()
    return Text(characters.full * max(1, waiting * QUEUE // longest), WARNING)
