import textwrap

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from plancha_app.chat import wrapping
from plancha_app.chat.wrapping import Wrapping

TALL = 200

words = st.text(alphabet="abcé世👋-.", min_size=1, max_size=30)
lines = st.lists(words, max_size=12).map(" ".join)
texts = st.lists(lines, max_size=5).map("\n".join)


def shown(pieces: list[str], width: int) -> list[str]:
    """On a terminal, as it ends up."""
    screen, wrapped = pyte.Screen(width, TALL), Wrapping()
    stream = pyte.Stream(screen)
    screen.set_mode(pyte.modes.LNM)  # as a terminal's driver has it: a new line begins at its left
    for piece in pieces:
        stream.feed(wrapped.wrap(piece, width))
    found = [line.rstrip() for line in screen.display]
    while found and not found[-1]:
        found.pop()
    return found


def test_lines_are_those_that_textwrap_makes() -> None:
    text = "It was the best of times, it was the worst of times, it was the age of wisdom"

    for width in range(10, 80):
        assert shown(list(text), width) == textwrap.wrap(text, width)


@given(text=texts, width=st.integers(8, 40), cut=st.integers(1, 7))
def test_no_letter_is_lost_wherever_pieces_end(text: str, width: int, cut: int) -> None:
    pieces = [text[at : at + cut] for at in range(0, len(text), cut)]

    found = shown(pieces, width)

    assert found == shown(list(text), width)
    assert "".join("".join(found).split()) == "".join(text.split())


def test_code_is_left_to_the_terminal() -> None:
    code = "for number in range(100): print(number)"
    text = f"So many words here that it wraps:\n```python\n{code}\n```\nand again here it does wrap"

    found = shown(list(text), 20)

    begin = found.index("```python")
    assert found[begin + 1 : begin + 3] == [code[:20], code[20:]]
    assert found[-2:] == ["and again here it", "does wrap"]


def test_a_word_longer_than_a_line_is_cut_as_terminals_do() -> None:
    assert shown(list("see " + "x" * 25), 10) == ["see", "x" * 10, "x" * 10, "x" * 5]


def test_a_long_text_without_spaces_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = 0

    def counting(text: str) -> int:
        nonlocal measured
        measured += len(text)
        return cell_len(text)

    monkeypatch.setattr(wrapping, "cell_len", counting)
    assert Wrapping().wrap("世界和平" * 500, 80).replace("\n", "") == "世界和平" * 500
    assert measured == 2000
