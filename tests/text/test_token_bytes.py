"""What a single id says, as log-probabilities show it."""

from plancha_text.byte_text import BOS, IM_END, byte_text


def test_an_id_is_its_bytes_and_a_special_token_its_name() -> None:
    text = byte_text()
    assert [text.token_bytes(byte) for byte in (0, 65, 0xF0)] == [b"\x00", b"A", b"\xf0"]
    assert text.token_bytes(BOS) == b"<bos>"
    assert text.token_bytes(IM_END) == b"<|im_end|>"


def test_ids_without_text_have_none() -> None:
    text = byte_text()
    assert [text.token_bytes(token) for token in (-1, text.vocabulary, 2**31)] == [b""] * 3
