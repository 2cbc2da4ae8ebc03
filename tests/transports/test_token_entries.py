"""Entries go with their text however tokens, text and rounds fall."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from plancha.contracts import TextStream
from plancha.streams.outbox import Delta
from plancha.streams.token_logprobs import TokenLogprob
from plancha_text.byte_text import byte_text
from plancha_transports.token_entries import EntryQueue, TokenEntry

TEXT = byte_text()
TOKENS = st.lists(
    st.sampled_from([*b"aab", *"🙂é".encode(), 0xFF, 257, 258, 262]), min_size=1, max_size=12
)


def stream(stop: tuple[str, ...] = ()) -> TextStream:
    return TEXT.stream(stop=stop, min_tokens=0, skip_special_tokens=True)


def deltas_of(tokens: list[int], stop: tuple[str, ...], hidden: bool) -> list[Delta]:
    """What a generation makes of the tokens; with `hidden` the last one ends it unseen."""
    text = stream(stop)
    deltas = []
    for position, token in enumerate(tokens, start=1):
        logprob = TokenLogprob(token, -1.0, ())
        if hidden and position == len(tokens):
            deltas.append(Delta(0, token, "", None, logprob, hidden=True))
            return [*deltas, Delta(0, None, text.finish(), "stop")]
        deltas.append(Delta(0, token, text.push(token), None, logprob))
        if text.stopped:
            return [*deltas, Delta(0, None, "", "stop")]
    return [*deltas, Delta(0, None, text.finish(), "length")]


@given(TOKENS, st.sampled_from([(), ("ab",), ("b", "🙂a"), ("\ufffd",)]), st.booleans())
def test_every_token_that_begins_in_the_text_is_told_once_and_not_before_its_text(
    tokens: list[int], stop: tuple[str, ...], hidden: bool
) -> None:
    deltas = deltas_of(tokens, stop, hidden)
    queue = EntryQueue(stream())
    told: list[TokenEntry] = []
    shown = ""
    for delta in deltas:
        shown += delta.text
        new = queue.take([delta])
        if delta.finish_reason is None:
            assert all(entry.offset < len(shown) for entry in new)
        told += new
    seen = [delta.token for delta in deltas if delta.token is not None and not delta.hidden]
    ids = [entry.token for entry in told]
    assert ids == seen[: len(ids)]
    cut = deltas[-1].finish_reason == "stop" and not any(delta.hidden for delta in deltas)
    if not cut:
        assert ids == seen
    else:
        assert all(entry.offset < len(shown) for entry in told)
        data = b"".join(TEXT.token_bytes(token) for token in ids if token < 256)
        assert data.decode("utf-8", "replace").startswith(shown.rstrip("\ufffd"))


@given(TOKENS, st.sampled_from([(), ("ab",)]), st.booleans(), st.data())
def test_how_deltas_fall_into_rounds_changes_nothing(
    tokens: list[int], stop: tuple[str, ...], hidden: bool, data: Any
) -> None:
    deltas = deltas_of(tokens, stop, hidden)
    at_once = EntryQueue(stream()).take(deltas)
    queue, rest = EntryQueue(stream()), deltas
    in_rounds: list[TokenEntry] = []
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        in_rounds += queue.take(rest[:size])
        rest = rest[size:]
    assert tuple(in_rounds) == at_once


def test_a_token_waits_until_all_of_its_text_is_shown() -> None:
    queue = EntryQueue(stream())

    def delta(token: int, text: str) -> Delta:
        return Delta(0, token, text, None, TokenLogprob(token, -1.0, ()))

    assert queue.take([delta(97, "a")]) == (TokenEntry(97, 0, TokenLogprob(97, -1.0, ())),)
    assert queue.take([delta(98, "")]) == ()
    assert [entry.token for entry in queue.take([delta(99, "bc")])] == [98, 99]
