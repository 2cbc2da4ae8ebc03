"""Four figures with their plots: output, prompts, first tokens, and what is between tokens."""

from collections.abc import Sequence

import attrs
from rich.text import Text

from plancha_app.sizes import count_text, seconds_text
from plancha_app.top.history import History
from plancha_app.top.looks import FAINT, FIRST, INTER, OUTPUT, PROMPT, WORST, Characters
from plancha_app.top.plot import Values, plot
from plancha_app.top.view import Quantiles, View

WORDS = 22
"""Columns of a gauge before its plot."""


@attrs.frozen(kw_only=True)
class Gauge:
    """A title, a value, something beside it, and a plot."""

    title: str
    value: str
    beside: str
    values: Values
    behind: Values | None
    style: str


def gauges(view: View, history: History) -> list[Gauge]:
    """Rates of the last interval, and quantiles of the server's last half minute."""
    samples = list(history.samples)
    output = [sample.output_per_s for sample in samples]
    prompt = [sample.prompt_per_s for sample in samples]
    recent = view.recent
    return [
        _rate("output tokens", output, OUTPUT),
        _times(
            "first token",
            recent.first_token,
            [sample.first_p50_s for sample in samples],
            [sample.first_p99_s for sample in samples],
            FIRST,
        ),
        _rate("prompt tokens", prompt, PROMPT),
        _times(
            "between tokens",
            recent.inter_token,
            [sample.inter_p50_s for sample in samples],
            [sample.inter_p99_s for sample in samples],
            INTER,
        ),
    ]


def _rate(title: str, values: Sequence[float], style: str) -> Gauge:
    value = f"{count_text(values[-1])}/s" if values else "-"
    beside = f"max {count_text(max(values))}" if values else ""
    return Gauge(title=title, value=value, beside=beside, values=values, behind=None, style=style)


def _times(title: str, now: Quantiles, values: Values, behind: Values, style: str) -> Gauge:
    return Gauge(
        title=title,
        value=seconds_text(now.p50_s),
        beside="" if now.p99_s is None else f"p99 {seconds_text(now.p99_s)}",
        values=values,
        behind=behind,
        style=style,
    )


def drawn(gauge: Gauge, size: tuple[int, int], characters: Characters) -> list[Text]:
    """Lines of exactly that width and height."""
    width, height = size
    words = [Text(gauge.title, FAINT), _value(gauge)]
    words += [Text()] * (height - len(words))
    values = gauge.values if len(gauge.values) > 1 else []  # of one there is no course
    room = width - WORDS, height
    plotted = plot(values, gauge.behind, room, (gauge.style, WORST), characters)
    lines = []
    for left, right in zip(words, plotted, strict=True):
        line = left.copy()
        line.truncate(WORDS - 1)
        line.pad_right(WORDS - line.cell_len)
        lines.append(line.append_text(right))
    return lines


def _value(gauge: Gauge) -> Text:
    return Text.assemble((gauge.value, f"bold {gauge.style}"), " ", (gauge.beside, FAINT))
