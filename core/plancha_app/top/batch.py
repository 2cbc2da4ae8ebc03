"""The batch: its slots as a bar, and its oldest sequences one by one."""

from rich.table import Table
from rich.text import Text

from plancha_app.sizes import count_text, seconds_text
from plancha_app.top.looks import FAINT, Characters, Hues
from plancha_app.top.tables import table
from plancha_app.top.view import Row, View

BAR = 16


def slots(view: View, width: int, hues: Hues, characters: Characters) -> Text:
    """One sign a slot, or for so many: full while it decodes, shaded while it reads its prompt."""
    batch = view.batch
    each = max(1, -(-batch.slots // width))
    line = Text(no_wrap=True)
    rows = sorted(batch.sequences, key=lambda row: row.tenant)
    for row in rows[::each]:
        sign = characters.full if row.state == "decode" else characters.prefill
        line.append(hues.sign(row.tenant, sign), hues.of(row.tenant))
    untold = (batch.running - len(rows)) // each
    line.append(characters.full * untold, FAINT)
    line.append(characters.dot * (batch.slots // each - line.cell_len), FAINT)
    line.truncate(width)
    return line


def summary(view: View) -> str:
    """For its heading."""
    batch = view.batch
    reading = sum(row.state == "prefill" for row in batch.sequences)
    told = f"{batch.running} of {batch.slots} slots"
    if view.scope != "all":
        return f"{batch.running} of yours, {batch.used_share:.0%} of {batch.slots} slots used"
    if reading and len(batch.sequences) == batch.running:
        return f"{batch.running - reading} writing, {reading} reading their prompt, {told}"
    return told


def sequences(view: View, rows: int, hues: Hues, characters: Characters) -> Table:
    """The oldest, in so many lines with the heading's."""
    found = table(
        ("request", 20), ("tenant", 14), ("", BAR), ("tokens", -11), ("blocks", -6),
        ("age", -8), ("preempted", -9),
    )  # fmt: skip
    for row in view.batch.sequences[: rows - 1]:
        found.add_row(
            Text(row.id, FAINT),
            Text(row.tenant, hues.of(row.tenant)),
            _progress(row, hues, characters),
            f"{count_text(row.known_tokens)}/{count_text(row.limit_tokens)}",
            str(row.blocks),
            seconds_text(row.age_s),
            str(row.preemptions) if row.preemptions else "",
        )
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
