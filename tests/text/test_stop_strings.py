"""Stop strings over streamed text: nothing of them is ever shown, everything else is."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plancha.failure import RequestFailed
from plancha_text.stop_strings import StopMatcher
from plancha_text.text import ModelText

Ids = Callable[[str], list[int]]


def run(
    text: ModelText, ids: Sequence[int], *stop: str, min_tokens: int = 0
) -> tuple[list[str], int | None]:
    """What each push showed, with what finishing showed last; and the token that stopped it."""
    stream = text.stream(stop=stop, min_tokens=min_tokens, skip_special_tokens=True)
    shown = []
    for number, token in enumerate(ids, start=1):
        shown.append(stream.push(token))
        if stream.stopped:
            return [*shown, stream.finish()], number
    return [*shown, stream.finish()], None


def test_no_part_of_a_stop_string_is_shown(bytes_as_tokens: ModelText) -> None:
    shown, stopped_at = run(bytes_as_tokens, b"KLMNOPQRSTUVW", "NOPQRST")
    assert shown == ["K", "L", "M", *[""] * 7, ""]
    assert stopped_at == 10


@pytest.mark.parametrize(
    ("pieces", "stop", "shown"),
    [
        ("▁is|▁Ber|lin|.", "Berl", " is "),
        ("▁is|▁Ber|lin|.", "rl", " is Be"),
        ("▁is|▁Berlin.", "Ber", " is "),
    ],
)
def test_a_stop_string_may_begin_and_end_inside_tokens(
    spm_text: ModelText, spm_ids: Ids, pieces: str, stop: str, shown: str
) -> None:
    deltas, stopped_at = run(spm_text, spm_ids(pieces), stop)
    assert "".join(deltas) == shown
    assert stopped_at is not None


def test_what_was_held_back_is_shown_at_the_end(bytes_as_tokens: ModelText) -> None:
    shown, stopped_at = run(bytes_as_tokens, b"KLMNOPQRS", "NOPQRST")
    assert ("".join(shown), shown[-1], stopped_at) == ("KLMNOPQRS", "NOPQRS", None)


def test_what_was_held_back_is_shown_as_soon_as_no_match_is_possible(
    bytes_as_tokens: ModelText,
) -> None:
    shown, _ = run(bytes_as_tokens, b"KLMNOPQRXY", "NOPQRST")
    assert shown == ["K", "L", "M", "", "", "", "", "", "NOPQRX", "Y", ""]


def test_a_stop_string_completed_before_min_tokens_is_text(bytes_as_tokens: ModelText) -> None:
    shown, stopped_at = run(bytes_as_tokens, b"a\nb\nc\nd\n", "\n", min_tokens=5)
    assert ("".join(shown), stopped_at) == ("a\nb\nc", 6)


def test_the_token_number_min_tokens_may_complete_a_stop_string(
    bytes_as_tokens: ModelText,
) -> None:
    shown, stopped_at = run(bytes_as_tokens, b"xxabxx", "ab", min_tokens=4)
    assert ("".join(shown), stopped_at) == ("xx", 4)


def test_where_the_text_is_cut_does_not_depend_on_the_tokens() -> None:
    for pieces in (["say </answer>"], ["say </", "answer", ">"], list("say </answer>")):
        matcher = StopMatcher(("</answer>", "answer"))
        assert "".join(matcher.push(piece, True) for piece in pieces) == "say </"
        assert matcher.matched


def test_of_stop_strings_completed_together_the_longest_counts() -> None:
    matcher = StopMatcher(("c", "abc"))
    assert matcher.push("xabc", True) == "x"


@pytest.mark.parametrize(("stop", "named"), [("", "stop[1]"), ("a\ud83d", "stop[1]")])
def test_a_stop_string_that_no_text_holds_is_refused(
    bytes_as_tokens: ModelText, stop: str, named: str
) -> None:
    with pytest.raises(RequestFailed) as refused:
        bytes_as_tokens.stream(stop=("ok", stop), min_tokens=0, skip_special_tokens=True)
    assert refused.value.failure.param == "stop"
    assert named in refused.value.failure.message


FEW_LETTERS = st.text("ab", max_size=5)
STOPS = st.lists(st.text("ab", min_size=1, max_size=6), min_size=1, max_size=4)


@settings(deadline=None)
@given(pieces=st.lists(FEW_LETTERS, max_size=12), stop=STOPS, min_tokens=st.integers(0, 8))
def test_matching_is_finding_in_the_whole_text_after_every_token(
    pieces: list[str], stop: list[str], min_tokens: int
) -> None:
    matcher = StopMatcher(tuple(stop))
    shown = text = ""
    for number, piece in enumerate(pieces, start=1):
        before, text = len(text), text + piece
        shown += matcher.push(piece, number >= min_tokens)
        completed = [  # by the piece: end, and length the other way round
            (start + len(each), -len(each))
            for each in stop
            if (start := text.find(each, max(before - len(each) + 1, 0))) >= 0
        ]
        if completed and number >= min_tokens:
            end, minus_length = min(completed)
            assert matcher.matched
            assert shown == text[: end + minus_length]
            return
        assert not matcher.matched
        undecided = max(
            length
            for length in range(len(text) + 1)
            if length == 0 or any(_begins(each, text[-length:]) for each in stop)
        )
        assert shown == text[: len(text) - undecided]
    assert shown + matcher.finish() == text


def _begins(stop: str, end: str) -> bool:
    return len(end) < len(stop) and stop.startswith(end)
