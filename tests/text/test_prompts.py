"""Raw prompts: one BOS, parsed special tokens, valid Unicode, and a bound on their length."""

import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers

from plancha.failure import RequestFailed
from plancha_text.byte_text import BOS, IM_END, byte_text
from plancha_text.gguf_tokenizer import gguf_tokenizer
from plancha_text.least_tokens import LeastTokens
from plancha_text.model_tokenizer import ModelTokenizer
from plancha_text.text import ModelText

WITH_BOS = byte_text(adds_bos=True)
WITHOUT_BOS = byte_text()


@pytest.mark.parametrize("prompt", ["hi", "<bos>hi"])
def test_a_model_that_wants_a_bos_gets_exactly_one(prompt: str) -> None:
    assert WITH_BOS.encode(prompt).tolist() == [BOS, *b"hi"]


def test_a_model_that_wants_none_gets_what_the_caller_wrote() -> None:
    assert WITHOUT_BOS.encode("hi").tolist() == [*b"hi"]
    assert WITHOUT_BOS.encode("<bos>hi").tolist() == [BOS, *b"hi"]


def test_a_bos_in_the_middle_is_not_the_one_in_front() -> None:
    assert WITH_BOS.encode("a<bos>").tolist() == [BOS, 97, BOS]


def test_an_empty_prompt_is_the_bos_or_nothing() -> None:
    assert WITH_BOS.encode("").tolist() == [BOS]
    assert WITHOUT_BOS.encode("").tolist() == []


def test_special_tokens_of_a_raw_prompt_are_parsed() -> None:
    assert WITHOUT_BOS.encode("a<|im_end|>b").tolist() == [97, IM_END, 98]


def test_ids_are_32_bit_integers() -> None:
    assert WITH_BOS.encode("hi").dtype == WITHOUT_BOS.encode("").dtype == "int32"
    assert WITHOUT_BOS.encode_chat([{"role": "user", "content": ""}]).dtype == "int32"


@pytest.mark.parametrize(("prompt", "place"), [("hi \ud83d", 3), ("\udc00", 0), ("🙂\ude42x", 1)])
def test_half_a_surrogate_pair_is_refused_with_its_place(prompt: str, place: int) -> None:
    with pytest.raises(RequestFailed, match=rf"lone surrogate .* at character {place};") as refused:
        WITHOUT_BOS.encode(prompt)
    assert (refused.value.failure.kind, refused.value.failure.param) == ("invalid", "prompt")


def test_a_pair_of_surrogates_in_json_is_one_emoji() -> None:
    assert WITHOUT_BOS.encode("\U0001f642").tolist() == [0xF0, 0x9F, 0x99, 0x82]


def test_threads_encode_the_same_text_alike() -> None:
    prompts = [f"prompt {number} 🙂 " * 200 for number in range(8)]
    found: dict[int, Any] = {}

    def encode(number: int) -> None:
        found[number] = WITHOUT_BOS.encode(prompts[number]).tolist()

    threads = [threading.Thread(target=encode, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [*prompt.encode()] for number, prompt in enumerate(prompts)}


@settings(deadline=None)
@given(prompt=st.text())
def test_least_tokens_is_exact_where_a_token_is_a_byte(prompt: str) -> None:
    longest = len("<|im_start|>")  # a special token stands for as many bytes
    assert WITHOUT_BOS.least_tokens(prompt) == -(-len(prompt.encode()) // longest)


@settings(deadline=None)
@given(prompt=st.text(st.sampled_from("hello w123'.\u0301e한\u1112\u1161\u11ab"), max_size=80))
@pytest.mark.parametrize("pre", ["gpt-2", "qwen2"])
def test_least_tokens_is_a_lower_bound(
    gpt2_metadata: dict[str, Any], pre: str, prompt: str
) -> None:
    text = TEXTS.setdefault(
        pre, ModelText(gguf_tokenizer({**gpt2_metadata, "tokenizer.ggml.pre": pre}))
    )
    assert text.least_tokens(prompt) <= text.encode(prompt).size


TEXTS: dict[str, ModelText] = {}


def test_least_tokens_needs_no_valid_unicode() -> None:
    assert WITHOUT_BOS.least_tokens("\ud83d" * 12) == 3


def test_least_tokens_leaves_out_bytes_the_vocabulary_lacks() -> None:
    bound = LeastTokens.of(of_letters())
    assert (bound("ab"), bound("a🙂"), bound("🙂🙂")) == (2, 1, 0)


@pytest.mark.parametrize("normalizer", [normalizers.Strip(), normalizers.NFKC()])
def test_where_text_may_shrink_there_is_no_bound(normalizer: normalizers.Normalizer) -> None:
    tokenizer = of_letters()
    tokenizer.tokenizer.normalizer = normalizer
    assert LeastTokens.of(tokenizer)("a" * 1000) == 0


def test_where_a_token_takes_in_space_there_is_no_bound() -> None:
    tokenizer = of_letters()
    tokenizer.tokenizer.add_tokens([AddedToken("<mask>", lstrip=True)])
    assert LeastTokens.of(tokenizer)("a" * 1000) == 0


def of_letters() -> ModelTokenizer:
    tokenizer = Tokenizer(models.BPE({"a": 0, "b": 1}, []))
    return ModelTokenizer(tokenizer=tokenizer, token_bytes=(b"a", b"b"), special={})
