"""Rates, plots and maps, by arithmetic."""

import json
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from live_views import live
from plancha_app.sizes import count_text, seconds_text, size_text
from plancha_app.top.block_map import codes
from plancha_app.top.history import History
from plancha_app.top.looks import UNICODE
from plancha_app.top.plot import plot
from plancha_app.top.view import Kv, View, understand


def view(at_s: float, generated: int, prompt: int = 0) -> View:
    told = live(at_s=at_s, generated=generated, prompt=prompt)
    return understand(json.dumps(told).encode(), "")


def test_rates_are_of_the_time_between_two_looks() -> None:
    history = History()
    for at_s, generated, prompt in ((1.0, 100, 0), (3.0, 150, 80), (3.5, 150, 80)):
        history.add(view(at_s, generated, prompt))

    assert [sample.output_per_s for sample in history.samples] == [25.0, 0.0]
    assert [sample.prompt_per_s for sample in history.samples] == [40.0, 0.0]


def test_the_same_look_again_is_no_look() -> None:
    history = History()
    for _ in range(3):
        history.add(view(1.0, 100))

    assert not history.samples


@pytest.mark.parametrize(("at_s", "generated"), [(0.5, 200), (9.0, 50)])
def test_a_server_that_started_again_starts_the_plots_again(at_s: float, generated: int) -> None:
    history = History()
    for look in (view(1.0, 100), view(2.0, 200), view(at_s, generated)):
        history.add(look)
    assert not history.samples

    history.add(view(at_s + 1, generated + 7))
    assert [sample.output_per_s for sample in history.samples] == [7.0]


def lines(values: list[float | None], width: int, height: int) -> list[str]:
    found = plot(values, None, (width, height), ("red", "grey42"), UNICODE)
    return [line.plain for line in found]


def test_columns_are_as_high_as_their_values_and_the_newest_is_on_the_right() -> None:
    # One line has seven eighths: the highest value takes them, half of it 3.5 and so 4.
    assert lines([0.0, 1.0, 2.0, None, 0.001], 7, 1) == ["   ▄▇ ▁"]


def test_of_more_values_than_columns_the_last_are_drawn() -> None:
    assert lines([9.0, 9.0, 1.0], 1, 1) == ["▇"]


@given(
    values=st.lists(st.none() | st.floats(0, 1e9), max_size=30),
    behind=st.none() | st.lists(st.none() | st.floats(0, 1e9), max_size=30),
    width=st.integers(0, 40),
    height=st.integers(1, 6),
)
def test_a_plot_has_its_size_whatever_is_in_it(
    values: list[float | None], behind: list[float | None] | None, width: int, height: int
) -> None:
    found = plot(values, behind, (width, height), ("red", "grey42"), UNICODE)

    assert [line.cell_len for line in found] == [width] * height


def kv(*runs: int) -> Kv:
    total = sum(runs[1::2])
    return Kv(block_size=16, total_blocks=total, used_share=0.5, map=list(runs))


def test_a_cell_is_what_most_of_its_blocks_are() -> None:
    # Blocks 0 0 0 3 | 3 3 5 5: the second cell is a draw, and the later tenant's.
    assert codes(kv(0, 3, 3, 3, 5, 2), 2) == [0, 5]


def test_of_fewer_blocks_than_cells_each_has_several() -> None:
    assert codes(kv(0, 1, 3, 1), 6) == [0, 0, 0, 3, 3, 3]


@given(
    runs=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 50)), max_size=20),
    cells=st.integers(1, 300),
)
def test_every_cell_shows_what_is_there(runs: list[tuple[int, int]], cells: int) -> None:
    found = codes(kv(*chain.from_iterable(runs)), cells)

    assert len(found) == (cells if runs else 0)
    assert set(found) <= {code for code, _ in runs}


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (None, "-"), (0.0, "0.00 ms"), (0.00123, "1.23 ms"), (0.0999, "99.9 ms"),
        (0.5, "500 ms"), (0.9996, "1.00 s"), (12.34, "12.3 s"), (99.96, "1 m 40 s"),
        (3599.6, "1 h 00 m"), (90000, "25 h 00 m"), (200000, "2 d 7 h"),
    ],
)  # fmt: skip
def test_times_are_told_in_three_digits(seconds: float | None, told: str) -> None:
    assert seconds_text(seconds) == told


@pytest.mark.parametrize(
    ("count", "told"),
    [(0, "0"), (7.25, "7.2"), (8.0, "8"), (999.6, "1,000"), (9999, "9,999"), (12345, "12.3k"),
     (123456, "123k"), (4567890, "4.57M"), (5e9, "5.00G")],
)  # fmt: skip
def test_counts_stay_short(count: float, told: str) -> None:
    assert count_text(count) == told


@pytest.mark.parametrize(
    ("count", "told"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (98_362_432, "98 MB"), (269e6, "269 MB"),
     (1.5e9, "1.5 GB")],
)  # fmt: skip
def test_sizes_are_in_powers_of_ten(count: int, told: str) -> None:
    assert size_text(count) == told


def test_a_tenant_that_is_told_of_for_the_first_time_has_no_more_than_all_together() -> None:
    history = History()
    for at_s, tenants, generated in ((10.0, 1, 1000), (11.0, 3, 1010)):
        told = live(at_s=at_s, tenants=tenants, generated=generated)
        history.add(understand(json.dumps(told).encode(), "http://h"))

    assert max(history.tenants_per_s.values()) == 10
