"""One frame: everything that is told of a server, in the room that a terminal has."""

import attrs
from rich.console import Console, Group, RenderableType
from rich.text import Text

from plancha_app.sizes import count_text, seconds_text
from plancha_app.top.batch import sequences, slots, summary
from plancha_app.top.block_map import block_map
from plancha_app.top.gauges import drawn, gauges
from plancha_app.top.history import History
from plancha_app.top.looks import ASCII, BAD, FAINT, OTHERS, UNICODE, Characters, Hues
from plancha_app.top.tenants import tenants
from plancha_app.top.view import View

FIXED = 10
"""Lines that are always there: headings, the legend, the slots, the totals, and the last."""

FOUR_GAUGES = 150
"""From so many columns on the gauges stand side by side."""


@attrs.frozen(kw_only=True)
class Page:
    """What a frame is drawn on and with."""

    width: int
    height: int
    characters: Characters
    hues: Hues

    @staticmethod
    def of(console: Console, height: int, hues: Hues) -> "Page":
        """With what the console can show."""
        characters = ASCII if console.options.ascii_only else UNICODE
        return Page(width=console.width, height=height, characters=characters, hues=hues)


@attrs.frozen(kw_only=True)
class Shares:
    """How many lines each part gets."""

    gauge: int
    map: int
    sequences: int
    tenants: int


def frame(
    view: View, history: History, page: Page, title: str, status: Text | None = None
) -> RenderableType:
    """At most the page's height; `status` is its last line."""
    shares = share_out(view, page)
    width, characters, hues = page.width, page.characters, page.hues
    for tenant in view.tenants:  # colours in the order of names, however they are ranked
        hues.of(tenant.name)
    parts: list[RenderableType] = [
        _title(view, title, page),
        *_gauges(view, history, page, shares.gauge),
        heading("KV pool", _kv(view), page),
        *block_map(view, (width, shares.map), hues, characters),
        _legend(view, page),
        heading("batch", summary(view), page),
        slots(view, width, hues, characters),
    ]
    if shares.sequences > 1:
        parts.append(sequences(view, (width, shares.sequences), hues, characters))
    parts += [
        heading("tenants", "", page),
        tenants(view, history, (width, shares.tenants), hues, characters),
        heading("since the start", "", page),
        _totals(view, width),
    ]
    return Group(*parts, *([status] if status is not None else []))


def share_out(view: View, page: Page) -> Shares:
    """Room for what there is most of: tenants first, then sequences, then larger pictures."""
    rows = 1 if page.width >= FOUR_GAUGES else 2
    gauge, picture = 2, 3
    room = page.height - FIXED - rows * gauge - picture
    told = min(len(view.tenants) + 1, max(2, room if room < 6 else room * 2 // 3))
    room -= told
    if room >= 12:  # then even a full batch leaves some for larger pictures
        picture, gauge, room = picture + room // 6, gauge + 1, room - room // 6 - rows
    listed = min(len(view.batch.sequences) + 1, max(0, room))
    listed = listed if listed > 1 else 0
    room -= listed
    while room >= rows and gauge < 4:
        gauge, room = gauge + 1, room - rows
    picture = min(picture + max(0, room), 10)
    return Shares(gauge=gauge, map=picture, sequences=listed, tenants=told)


def heading(title: str, told: str, page: Page) -> Text:
    """A line across, with a title on the left and figures on the right."""
    line = Text(no_wrap=True)
    line.append(page.characters.rule * 2 + " ", FAINT).append(title, "bold")
    right = f" {told} " if told else ""
    rules = page.width - line.cell_len - 1 - len(right) - 2
    line.append(" ").append(page.characters.rule * max(0, rules), FAINT)
    line.append(right).append(page.characters.rule * 2, FAINT)
    return line


def _title(view: View, title: str, page: Page) -> Text:
    whose = "all tenants" if view.scope == "all" else f"{_own_name(view)} alone"
    right = f"{whose} {page.characters.dot} up {seconds_text(view.at_s)}"
    line = Text(no_wrap=True).append("plancha top", "bold").append(f"  {title}")
    room = page.width - len(right)
    line.truncate(room - 1)
    line.pad_right(room - line.cell_len)
    return line.append(right, FAINT)


def _own_name(view: View) -> str:
    return view.tenants[0].name if view.tenants else "a tenant"


def _gauges(view: View, history: History, page: Page, height: int) -> list[Text]:
    found = gauges(view, history)
    abreast = 4 if page.width >= FOUR_GAUGES else 2
    width = (page.width - 2 * (abreast - 1)) // abreast
    lines = []
    for begin in range(0, len(found), abreast):
        columns = [
            drawn(each, (width, height), page.characters) for each in found[begin : begin + abreast]
        ]
        lines += [Text("  ").join(row) for row in zip(*columns, strict=True)]
    return lines


def _kv(view: View) -> str:
    kv = view.kv
    parts = [f"{kv.used_share:.0%} of {kv.total_blocks:,} blocks held"]
    if kv.cached_blocks is not None:
        parts.append(f"{_share(kv.cached_blocks, kv.total_blocks)} cached")
    if kv.waste is not None:
        parts.append(f"{kv.waste:.1%} waste")
    if kv.host_blocks:
        parts.append(f"host {kv.host_blocks - kv.host_free_blocks:,} of {kv.host_blocks:,}")
    return ", ".join(parts)


def _legend(view: View, page: Page) -> Text:
    characters, hues = page.characters, page.hues
    line = Text(no_wrap=True)
    holders = sorted(view.tenants, key=lambda tenant: -tenant.blocks)
    for tenant in holders:
        if tenant.blocks:
            line.append(hues.sign(tenant.name, characters.held), hues.of(tenant.name))
            line.append(f" {tenant.name} {_share(tenant.blocks, view.kv.total_blocks)}  ")
    if any(tenant.shared_blocks for tenant in holders):
        line.append(characters.shared, OTHERS).append(" by several  ")
    if view.scope == "all":
        line.append(characters.cached, FAINT).append(" cached  ")
        line.append(characters.free, FAINT).append(" free")
    else:
        line.append(characters.others, OTHERS).append(" all else")
    line.truncate(page.width)
    return line


def _totals(view: View, width: int) -> Text:
    """What never happened is not told."""
    counters = view.counters
    ended, preempted = counters.ended, counters.preemptions or {}
    answered = ended.get("stop", 0) + ended.get("length", 0)
    cached = counters.cached_prompt_tokens
    share = _share(cached, counters.prompt_tokens) if cached else ""
    line = Text(f"{count_text(answered)} answered", no_wrap=True)
    for count, told, style in (
        (ended.get("cancelled", 0), "cancelled", ""),
        (ended.get("error", 0), "failed", BAD),
        (counters.rejected or 0, "refused", BAD),
        (preempted.get("swapped", 0), "swapped out", ""),
        (preempted.get("recompute", 0), "preempted", ""),
    ):
        if count:
            line.append(", ").append(f"{count_text(count)} {told}", style)
    line.append(f"; {share} of prompts from the cache" if share else "")
    line.truncate(width)
    return line


def _share(part: int, whole: int) -> str:
    if not whole:
        return "0%"
    share = part / whole
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"
