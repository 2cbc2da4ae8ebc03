"""A run as a picture: how long first tokens took, the pace after them, and tokens over time."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from plancha_app.bench.client import Outcome
from plancha_app.bench.result_file import read_outcomes
from plancha_app.complaints import Mistake

ENDINGS = (".png", ".svg")
MOST_PARTS, SHORTEST_PART_S = 60, 0.25
"""Of a run's time, for tokens a second: shorter ones would show steps and not the pace."""

INK, GRID = "#3b4252", "#d8dee9"
COLOURS = ("#2a6fbb", "#d9822b", "#3a8f5d", "#b3446c", "#7a5bb5", "#6b7280")


def draw_files(paths: Sequence[Path], to: Path) -> int:
    """Draw what `--out` wrote. Raises `Mistake` for files that are no results."""
    if not paths:
        raise Mistake("name a result to draw: a file that `plancha bench --out FILE` wrote")
    check_can_draw(to)
    draw({path.stem: read_outcomes(path) for path in paths}, to)
    return 0


def check_can_draw(to: Path) -> None:
    """Before a long run. Raises `Mistake` when it would be in vain."""
    if to.suffix not in ENDINGS:
        raise Mistake(f"{to}: a picture's name ends in {' or '.join(ENDINGS)}")
    if not to.absolute().parent.is_dir():
        raise Mistake(f"{to}: there is no folder {to.parent}")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise Mistake("drawing needs matplotlib: pip install 'plancha[plot]'") from None


def draw(results: Mapping[str, Sequence[Outcome]], to: Path) -> None:
    """One line a result in each of three plots."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.6), layout="constrained")
    axes = figure.subplots(1, 3)
    named = zip(results.items(), COLOURS * len(results), strict=False)
    for (name, outcomes), colour in named:
        good = [outcome for outcome in outcomes if outcome.error is None]
        _shares(axes[0], [each.ttft_s for each in good if each.ttft_s is not None], name, colour)
        _shares(axes[1], [gap for each in good for gap in each.gaps_s], name, colour)
        _pace(axes[2], outcomes, name, colour)
    for axis, title, unit in zip(
        axes,
        ("Time to the first token", "Time between tokens", "Output tokens a second"),
        ("ms", "ms", "seconds since the start"),
        strict=True,
    ):
        _dress(axis, title, unit)
    for axis in axes[:2]:
        axis.set_ylabel("share of them, at most so long")
        axis.set_ylim(0, 1.04)
    axes[2].set_ylim(bottom=0)
    if len(results) > 1:
        axes[0].legend(frameon=False, loc="lower right", fontsize=9)
    figure.savefig(to, dpi=160, metadata={"Date": None} if to.suffix == ".svg" else None)


def _shares(axis: Any, seconds: Sequence[float], name: str, colour: str) -> None:
    """How large a share took at most so long, with the median and the 99th percentile marked."""
    if not seconds:
        return
    values = np.sort(np.asarray(seconds)) * 1e3
    shares = np.arange(1, values.size + 1) / values.size
    axis.step(values, shares, where="post", color=colour, label=name, linewidth=1.6)
    points = np.percentile(values, (50, 99))
    axis.plot(points, (0.5, 0.99), "o", color=colour, markersize=4)
    if values[0] > 0 and values[-1] / values[0] > 20:
        axis.set_xscale("log")


def _pace(axis: Any, outcomes: Sequence[Outcome], name: str, colour: str) -> None:
    """Events, which are tokens where each has its own, scaled to what the server counted."""
    times = np.sort([at_s for each in outcomes for at_s in each.events])
    if times.size < 2:
        return
    began_s = min(outcome.sent_s for outcome in outcomes)
    lasted_s = float(times[-1] - began_s)
    parts = max(1, min(MOST_PARTS, int(lasted_s / SHORTEST_PART_S)))
    counts, edges = np.histogram(times - began_s, parts, (0.0, lasted_s))
    tokens = sum(outcome.output_tokens for outcome in outcomes if outcome.events)
    per_s = counts / np.diff(edges) * (tokens / times.size if tokens else 1.0)
    axis.stairs(per_s, edges, color=colour, linewidth=1.4, label=name)


def _dress(axis: Any, title: str, unit: str) -> None:
    axis.set_title(title, fontsize=11, color=INK)
    axis.set_xlabel(unit, color=INK)
    axis.grid(color=GRID, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(colors=INK, labelsize=9)
    axis.yaxis.label.set_color(INK)
