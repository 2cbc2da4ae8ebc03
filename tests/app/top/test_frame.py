"""Frames for every size of terminal, of idle and of crowded servers."""

import json
import re

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from live_views import live
from plancha_app.remote.server_error import ServerError
from plancha_app.top.frame import Page, frame
from plancha_app.top.history import History
from plancha_app.top.looks import ASCII, Hues
from plancha_app.top.view import View, understand
from plancha_transports.live_schema import LIVE


def view(**changes: object) -> View:
    return understand(json.dumps(live(**changes)).encode(), "http://h")  # type: ignore[arg-type]


def drawn(
    shown: View,
    width: int = 80,
    height: int = 24,
    *,
    history: History | None = None,
    coloured: bool = True,
    status: str = "q leaves",
) -> list[str]:
    console = Console(
        width=width, height=height, color_system="truecolor" if coloured else None, record=True,
        force_terminal=True, highlight=False, file=open("/dev/null", "w"),
    )  # fmt: skip
    page = Page.of(console, height, Hues(coloured=coloured))
    with console.file:
        console.print(frame(shown, history or History(), page, "tiny at http://h", Text(status)))
        return console.export_text().splitlines()


@pytest.mark.parametrize("scope", ["all", "tenant"])
def test_what_is_made_up_here_is_what_servers_tell(scope: str) -> None:
    jsonschema.validate(live(scope=scope), LIVE)


@settings(deadline=None, max_examples=60)
@given(
    width=st.integers(80, 260),
    height=st.integers(24, 100),
    tenants=st.integers(0, 40),
    sequences=st.integers(0, 256),
    blocks=st.sampled_from([0, 1, 7, 64, 5000]),
    scope=st.sampled_from(["all", "tenant"]),
    coloured=st.booleans(),
)
def test_a_frame_fits_every_terminal(
    width: int,
    height: int,
    tenants: int,
    sequences: int,
    blocks: int,
    scope: str,
    coloured: bool,
) -> None:
    shown = view(tenants=tenants, sequences=sequences, slots=256, blocks=blocks, scope=scope)

    lines = drawn(shown, width, height, coloured=coloured)

    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert lines[-1].startswith("q leaves")


def test_a_small_terminal_shows_every_part() -> None:
    text = "\n".join(drawn(view()))

    for told in (
        "output tokens", "first token", "120 ms p99 1.50 s", "between tokens",
        "90% of 64 blocks held, 9% cached, 2.0% waste, host 12 of 32",
        "5 decode, 1 prefill, 6 of 8 slots",
        "33 answered, 2 cancelled, 1 failed, 5 refused, 4 swapped out, 7 preempted",
        "all tenants · up 10.0 s", "tiny at http://h",
    ):  # fmt: skip
        assert told in text


def test_who_waits_is_told_by_tenant_with_a_bar() -> None:
    rows = {line.split()[0]: line for line in drawn(view()) if line[:4] in ("acme", "nigh", "tria")}

    assert re.split(r"  +", rows["acme"].strip())[:4] == ["acme", "0", "2", "0"]
    assert rows["nightly-batch"].split()[3:5] == ["3", "████"]
    assert rows["trial"].split()[3:5] == ["6", "████████"]  # the longest queue
    assert rows["trial"].split()[5:7] == ["3.70", "s"]


def test_of_many_tenants_the_busiest_are_shown_and_the_rest_counted() -> None:
    lines = drawn(view(tenants=40))

    shown = [line for line in lines if line.startswith(("acme", "nightly", "tri", "tenant-"))]
    (left,) = [line for line in lines if line.startswith("and ")]
    assert len(shown) + int(left.split()[1]) == 40


def test_a_tenant_sees_that_it_is_told_of_itself_alone() -> None:
    text = "\n".join(drawn(view(scope="tenant", tenants=1)))

    assert "acme alone" in text
    assert "all else" in text and "cached" not in text
    assert "refused" not in text and "swapped" not in text


def test_without_colours_letters_say_whose_a_block_is() -> None:
    lines = drawn(view(blocks=240), coloured=False)

    begin = next(number for number, line in enumerate(lines) if "KV pool" in line)
    cells = "".join(lines[begin + 1 : begin + 4])
    assert {"A", "B", "C"} <= set(cells)
    assert "A acme" in "".join(lines)


def test_a_plain_terminal_gets_plain_characters() -> None:
    page = Page(width=80, height=24, characters=ASCII, hues=Hues(coloured=False))
    console = Console(width=80, record=True, file=open("/dev/null", "w"))
    with console.file:
        console.print(frame(view(), History(), page, "tiny", Text("q leaves")))
        assert console.export_text().isascii()


def test_rates_are_told_from_the_second_look_on() -> None:
    history = History()
    history.add(view())
    assert "output tokens" in drawn(view(), history=history)[1]
    assert drawn(view(), history=history)[2].startswith("- ")

    history.add(view(at_s=12.0, generated=3400))

    assert drawn(view(), history=history)[2].startswith("1,200/s max 1,200")


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"object": "live"}', b"<html>", b"\xff"])
def test_what_is_no_live_view_is_told(body: bytes) -> None:
    with pytest.raises(ServerError, match="http://h does not tell"):
        understand(body, "http://h")


def test_a_newer_server_may_tell_more() -> None:
    told = live()
    told["news"] = told["kv"]["news"] = 1

    assert understand(json.dumps(told).encode(), "").kv.total_blocks == 64


def test_no_name_moves_the_cursor_or_breaks_a_line() -> None:
    told = live()
    told["tenants"][0]["name"] = "a\x1b]0;owned\x07\nb"
    told["batch"]["sequences"][0]["id"] = "req\x1b[2J"
    lines = drawn(understand(json.dumps(told).encode(), "http://h"), 200, 50)

    assert r"a\x1b]0;owned\x07\nb" in "\n".join(lines)
    assert not any("\x1b" in line or "\x07" in line for line in lines)


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("kv", {"map": [0, 10**15]}),
        ("batch", {"slots": 10**15}),
        ("batch", {"running": -(10**15)}),
    ],
)
def test_what_would_fill_the_memory_is_not_drawn(part: str, changes: dict[str, object]) -> None:
    told = live()
    told[part].update(changes)

    with pytest.raises(ServerError):
        understand(json.dumps(told).encode(), "http://h")
