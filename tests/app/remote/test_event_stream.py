"""Against the standard's own examples (WHATWG HTML, 9.2.6), and cut anywhere."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plancha_app.remote.event_stream import MOST_BYTES, Event, EventStream, EventStreamError


def events(*chunks: bytes) -> list[Event]:
    stream = EventStream()
    found = [event for chunk in chunks for event in stream.feed(chunk)]
    return [*found, *stream.end()]


@pytest.mark.parametrize(
    ("text", "data"),
    [
        (b"data: YHOO\ndata: +2\ndata: 10\n\n", [b"YHOO\n+2\n10"]),
        (b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\n",
         [b"first event", b"second event"]),
        (b"data\n\ndata\ndata\n\n", [b"", b"\n"]),
        (b"data:test\n\ndata: test\n\ndata:  two spaces\n\n", [b"test", b"test", b" two spaces"]),
        (b"\xef\xbb\xbfdata: after a byte order mark\n\n", [b"after a byte order mark"]),
        (b"data: a\r\rdata: b\r\n\r\ndata: c\n\r\n", [b"a", b"b", b"c"]),
        (b"foo: bar\nretry: 10\n\n", []),
    ],
)  # fmt: skip
def test_the_standards_examples(text: bytes, data: list[bytes]) -> None:
    assert [event.data for event in events(text)] == data


def test_an_event_may_have_a_name_and_the_next_has_none() -> None:
    assert events(b"event: error\ndata: x\n\ndata: y\n\n") == [
        Event("error", b"x"),
        Event("", b"y"),
    ]


def test_the_last_event_counts_even_without_its_empty_line() -> None:
    assert [event.data for event in events(b"data: a\n\n", b"data: [DONE]")] == [b"a", b"[DONE]"]


lines = st.sampled_from(
    [b"data: x", b"data:", b"", b": c", b"event: e", b"id: 1", b"data: \xc3\xa9"]
)
ends = st.sampled_from([b"\n", b"\r\n", b"\r"])
streams = st.lists(st.tuples(lines, ends).map(b"".join), max_size=12).map(b"".join)


@given(text=streams, cuts=st.lists(st.integers(0, 100), max_size=6))
def test_where_chunks_end_makes_no_difference(text: bytes, cuts: list[int]) -> None:
    bounds = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    chunks = [text[begin:end] for begin, end in pairwise(bounds)]

    assert events(*chunks) == events(text)


def test_a_stream_that_never_ends_a_line_ends_somewhere() -> None:
    stream = EventStream()
    with pytest.raises(EventStreamError):
        stream.feed(b"x" * (MOST_BYTES + 1))
