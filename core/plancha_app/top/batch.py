"""The batch: its slots as a bar, and its oldest sequences one by one."""

from rich.table import Table
from rich.text import Text

from plancha_app.sizes import count_text, seconds_text
from plancha_app.top.looks import FAINT, Characters, Hues
from plancha_app.top.tables import table
from plancha_app.top.view import Row, View

BAR = 16
SHORT_ID, LONG_ID = 19, 36
WIDE = 112
"""From so many columns on there is room for whole ids, and more figures."""


def slots(view: View, width: int, hues: Hues, characters: Characters) -> Text:
    """Its slots across the page: full while one decodes, shaded in prefill."""
    batch = view.batch
    rows = sorted(batch.sequences, key=lambda row: row.tenant)
    signs = [_slot(row, hues, characters) for row in rows]
    signs += [(characters.full, FAINT)] * (batch.running - len(rows))
    signs += [(characters.dot, FAINT)] * (batch.slots - len(signs))
    line = Text(no_wrap=True)
    for column in range(width):
        line.append(*signs[column * len(signs) // width])
    return line


def _slot(row: Row, hues: Hues, characters: Characters) -> tuple[str, str]:
    sign = characters.full if row.state == "decode" else characters.prefill
    return hues.sign(row.tenant, sign), hues.of(row.tenant)


def summary(view: View) -> str:
    """For its heading."""
    batch = view.batch
    reading = sum(row.state == "prefill" for row in batch.sequences)
    told = f"{batch.running} of {batch.slots} slots"
    if view.scope != "all":
        return f"{batch.running} of yours, {batch.used_share:.0%} of {batch.slots} slots used"
    if reading and len(batch.sequences) == batch.running:
        return f"{batch.running - reading} decode, {reading} prefill, {told}"
    return told


def sequences(view: View, size: tuple[int, int], hues: Hues, characters: Characters) -> Table:
    """The oldest, in so many lines with the heading's."""
    width, rows = size
    wide = width >= WIDE
    found = table(
        characters,
        ("request", LONG_ID if wide else SHORT_ID), ("tenant", 20 if wide else 15), ("", BAR),
        ("tokens", -11), ("blocks", -6), ("age", -8), *((("preempted", -9),) if wide else ()),
    )  # fmt: skip
    for row in view.batch.sequences[: rows - 1]:
        cells: list[Text | str] = [
            Text(row.id, FAINT),
            Text(row.tenant, hues.of(row.tenant)),
            _progress(row, hues, characters),
            f"{count_text(row.known_tokens)}/{count_text(row.limit_tokens)}",
            str(row.blocks),
            seconds_text(row.age_s),
        ]
        found.add_row(*cells, *([str(row.preemptions or "")] if wide else []))
    return found


def _progress(row: Row, hues: Hues, characters: Characters) -> Text:
    """How far its prompt is read; then how much of what it may write is written."""
    if row.state == "prefill":
        done, whole, sign = row.computed_tokens, row.prompt_tokens, characters.prefill
    else:
        done = row.known_tokens - row.prompt_tokens
        whole, sign = row.limit_tokens - row.prompt_tokens, characters.full
    filled = min(BAR, done * BAR // whole) if whole > 0 else BAR
    line = Text(sign * filled, hues.of(row.tenant))
    return line.append(characters.dot * (BAR - filled), FAINT)
