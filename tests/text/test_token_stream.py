"""Ids to text, exactly: never half a character, never taken back."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plancha_text.byte_text import EOS, IM_END, byte_text
from plancha_text.gguf_metadata import read_metadata
from plancha_text.text import ModelText

REPLACEMENT = "\ufffd"
Ids = Callable[[str], list[int]]
Deltas = Callable[..., list[str]]


@pytest.mark.parametrize("said", ["Hi 🙂!", "안녕", "ß", "한국어 😀😀 naïve"])
def test_characters_come_whole_with_their_last_byte(
    bytes_as_tokens: ModelText, deltas: Deltas, said: str
) -> None:
    pushed = deltas(bytes_as_tokens, list(said.encode()))
    assert "".join(pushed) == said
    assert not any(REPLACEMENT in delta for delta in pushed)
    widths = [len(character.encode()) for character in said]
    ends = {sum(widths[: number + 1]) - 1: each for number, each in enumerate(said)}
    assert pushed == [ends.get(place, "") for place in range(len(said.encode()))] + [""]


def test_two_emoji_of_byte_tokens_in_a_row_stay_two_emoji(
    spm_text: ModelText, spm_ids: Ids, deltas: Deltas
) -> None:
    fox = "[F0]|[9F]|[A6]|[8A]"
    pushed = deltas(spm_text, spm_ids(f"▁Hello|{fox}|{fox}|▁world"))
    assert pushed == [" Hello", "", "", "", "🦊", "", "", "", "🦊", " world", ""]


def test_an_unfinished_character_is_one_replacement_character_at_the_end(
    bytes_as_tokens: ModelText, spm_text: ModelText, spm_ids: Ids, deltas: Deltas
) -> None:
    assert deltas(bytes_as_tokens, [72, 105, 32, 240, 159])[-1] == REPLACEMENT
    pushed = deltas(spm_text, spm_ids("▁Hi|[F0]|[9F]|[99]|[82]|[F0]"))
    assert "".join(pushed) == f" Hi🙂{REPLACEMENT}"


def test_words_keep_the_space_before_them(
    spm_text: ModelText, spm_ids: Ids, deltas: Deltas
) -> None:
    assert "".join(deltas(spm_text, spm_ids("▁Hello|▁world|!"))) == " Hello world!"


def test_special_tokens_are_hidden_or_shown_whole(
    bytes_as_tokens: ModelText, deltas: Deltas
) -> None:
    ids = [*b"ok", IM_END, EOS]
    assert deltas(bytes_as_tokens, ids) == ["o", "k", "", "", ""]
    shown = deltas(bytes_as_tokens, ids, skip_special_tokens=False)
    assert shown == ["o", "k", "<|im_end|>", "<eos>", ""]


def test_a_special_token_spelt_in_ordinary_bytes_is_text(
    bytes_as_tokens: ModelText, deltas: Deltas
) -> None:
    assert "".join(deltas(bytes_as_tokens, list(b"<|im_end|>"))) == "<|im_end|>"


@pytest.mark.parametrize("token", [260, 263, 10**6, -1])
def test_ids_without_text_add_nothing(
    bytes_as_tokens: ModelText, deltas: Deltas, token: int
) -> None:
    assert deltas(bytes_as_tokens, [72, token, 105]) == ["H", "", "i", ""]
    assert not bytes_as_tokens.has_text(token)


@pytest.mark.parametrize(
    "data", [b"a\xffb", b"a\xf0 b", b"\xf0" * 40 + b"a", b"\xe2\x82", b"\xed\xa0\x80x"]
)
def test_invalid_bytes_are_replaced_as_python_does_and_never_waited_for(
    bytes_as_tokens: ModelText, deltas: Deltas, data: bytes
) -> None:
    pushed = deltas(bytes_as_tokens, list(data))
    assert "".join(pushed) == data.decode("utf-8", "replace")
    for sent in range(1, len(data) + 1):  # at most three bytes are ever undecided
        assert "".join(pushed[:sent]).startswith(data[: max(sent - 3, 0)].decode("utf-8", "ignore"))


@settings(deadline=None)
@given(ids=st.lists(st.integers(0, 263)))
def test_a_stream_is_the_decoding_of_all_its_bytes(ids: list[int]) -> None:
    stream = TEXT.stream(stop=(), min_tokens=0, skip_special_tokens=True)
    pushed = [stream.push(token) for token in ids]
    data = bytes(token for token in ids if token < 256)
    assert "".join(pushed) + stream.finish() == data.decode("utf-8", "replace")


@settings(deadline=None)
@given(said=st.text())
def test_valid_text_is_complete_before_the_end(said: str) -> None:
    stream = TEXT.stream(stop=(), min_tokens=0, skip_special_tokens=True)
    assert "".join([stream.push(token) for token in said.encode()]) == said
    assert stream.finish() == ""


TEXT = byte_text()


@pytest.fixture(scope="module")
def default_bytes(model_file: Path) -> list[bytes]:
    """By id, from the file's tokens and transformers' table of the byte-level alphabet."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    table = bytes_to_unicode()  # type: ignore[no-untyped-call]
    alphabet = {character: byte for byte, character in table.items()}
    tokens = read_metadata(model_file, "tokenizer.ggml.tokens")["tokenizer.ggml.tokens"]
    return [
        b"" if id_ <= 16 else bytes(alphabet[each] for each in token)
        for id_, token in enumerate(tokens)
    ]


@pytest.mark.model
@settings(deadline=None)
@given(ids=st.lists(st.integers(0, 49_151), max_size=40))
def test_the_default_model_decodes_any_ids_byte_by_byte(
    default_text: ModelText, default_bytes: list[bytes], ids: list[int]
) -> None:
    stream = default_text.stream(stop=(), min_tokens=0, skip_special_tokens=True)
    pushed = "".join([stream.push(token) for token in ids])
    data = b"".join(default_bytes[token] for token in ids)
    assert pushed + stream.finish() == data.decode("utf-8", "replace")
