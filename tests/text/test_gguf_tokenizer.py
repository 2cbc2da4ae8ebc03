"""Tokenizers rebuilt from GGUF metadata, held against the libraries the models were made with."""

import io
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from plancha.contracts import LoadError
from plancha_text.gguf_tokenizer import gguf_tokenizer
from plancha_text.pre_tokenizers import pre_tokenizer
from plancha_text.text import ModelText

LICENSE = Path(__file__).parents[2] / "LICENSE"
# What pre-tokenizers tell apart: letters of several scripts, marks, digits, spaces, line ends.
TELLING = "aZéßñ한国я '\u2019sStTrReEdDlL0129²½٣\u00a0\u3000\t\r\n.,!?-_$+<=>^~|`\u0301😀"
TEXTS = st.text(st.sampled_from(TELLING), max_size=60)


Processor = sentencepiece.SentencePieceProcessor


@pytest.fixture(scope="module")
def reference() -> Processor:
    """SentencePiece itself, trained on the licence."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LICENSE.read_text().splitlines()),
        model_writer=model,
        model_type="bpe",
        vocab_size=600,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    return Processor(model_proto=model.getvalue())


@pytest.fixture(scope="module")
def scored(reference: Processor) -> ModelText:
    """Ours, from what a GGUF file has of the reference."""
    return ModelText(gguf_tokenizer(metadata_of(reference)))


def metadata_of(processor: Processor) -> dict[str, Any]:
    ids = range(processor.get_piece_size())
    kinds = [
        2 if processor.is_unknown(id_) else 3 if processor.is_control(id_) else
        6 if processor.is_byte(id_) else 1
        for id_ in ids
    ]  # fmt: skip
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [processor.id_to_piece(id_) for id_ in ids],
        "tokenizer.ggml.scores": [processor.get_score(id_) for id_ in ids],
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.bos_token_id": processor.bos_id(),
        "tokenizer.ggml.unknown_token_id": processor.unk_id(),
    }


LICENSE_WORDS = st.lists(st.sampled_from(LICENSE.read_text().split(" "))).map(" ".join)


@settings(deadline=None)
@given(text=st.one_of(TEXTS, LICENSE_WORDS, st.text(max_size=30)))
def test_a_vocabulary_with_scores_encodes_as_sentencepiece_does(
    scored: ModelText, reference: Processor, text: str
) -> None:
    assert scored.encode(text).tolist() == [reference.bos_id(), *reference.encode(text)]


@settings(deadline=None)
@given(text=LICENSE_WORDS)
def test_what_a_vocabulary_with_scores_encodes_it_decodes(scored: ModelText, text: str) -> None:
    stream = scored.stream(stop=(), min_tokens=0, skip_special_tokens=True)
    decoded = "".join([stream.push(token) for token in scored.encode(text).tolist()])
    assert decoded + stream.finish() == (f" {text}" if text else "")


@settings(deadline=None)
@given(text=TEXTS)
def test_qwen2_splits_text_as_transformers_does(text: str) -> None:
    from transformers.models.qwen2 import tokenization_qwen2

    reference = pre_tokenizers.Split(Regex(tokenization_qwen2.PRETOKENIZE_REGEX), "isolated")
    assert pieces("qwen2", text) == spelt_pieces(reference, text)


@settings(deadline=None)
@given(text=TEXTS)
@pytest.mark.parametrize("name", ["llama-bpe", "llama3", "llama-v3"])
def test_llama3_splits_text_as_transformers_does(name: str, text: str) -> None:
    from transformers.convert_slow_tokenizer import TikTokenConverter

    pattern = TikTokenConverter().pattern  # type: ignore[no-untyped-call]
    assert pieces(name, text) == spelt_pieces(
        pre_tokenizers.Split(Regex(pattern), "isolated"), text
    )


@settings(deadline=None)
@given(text=TEXTS)
def test_gpt2_splits_text_as_the_tokenizers_library_does(text: str) -> None:
    reference = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    assert pieces("gpt-2", text) == [piece for piece, _ in reference.pre_tokenize_str(text)]


@settings(deadline=None)
@given(text=TEXTS)
def test_smollm_splits_digits_and_then_as_gpt2(text: str) -> None:
    reference = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    assert pieces("smollm", text) == [piece for piece, _ in reference.pre_tokenize_str(text)]


def test_the_default_splits_punctuation_first_and_digits_by_three() -> None:
    assert pieces("default", "a-b  x12345,6") == ["a", "-", "b", "Ġ", "Ġx", "123", "45", ",", "6"]


def pieces(name: str, text: str) -> list[str]:
    return [piece for piece, _ in pre_tokenizer(name).build().pre_tokenize_str(text)]


def spelt_pieces(split: pre_tokenizers.Split, text: str) -> list[str]:
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    spelt = pre_tokenizers.Sequence([split, to_bytes])
    return [piece for piece, _ in spelt.pre_tokenize_str(text)]


def test_merges_special_and_user_defined_tokens_make_the_ids(
    gpt2_metadata: dict[str, Any],
) -> None:
    text = ModelText(gguf_tokenizer(gpt2_metadata))
    tokens = gpt2_metadata["tokenizer.ggml.tokens"]
    ids = text.encode("hello w<|end|>hell<think>123  ...")
    expected = ["hello", "Ġw", "<|end|>", "hell", "<think>", "123", "Ġ", "Ġ", "..."]
    assert [tokens[id_] for id_ in ids] == expected


def test_unused_ids_have_no_text_and_cannot_be_encoded(gpt2_metadata: dict[str, Any]) -> None:
    text = ModelText(gguf_tokenizer(gpt2_metadata))
    unused = gpt2_metadata["tokenizer.ggml.tokens"].index("[PAD0]")
    assert text.vocabulary == unused + 1
    assert not text.has_text(unused)
    assert unused not in text.encode("[PAD0]")


def test_llama3_takes_whole_words_before_merges(gpt2_metadata: dict[str, Any]) -> None:
    unreachable = {**gpt2_metadata, "tokenizer.ggml.bos_token_id": 0}
    unreachable["tokenizer.ggml.tokens"] = [*gpt2_metadata["tokenizer.ggml.tokens"], "wow"]
    unreachable["tokenizer.ggml.token_type"] = [*gpt2_metadata["tokenizer.ggml.token_type"], 1]
    wow = len(unreachable["tokenizer.ggml.tokens"]) - 1
    by_words = ModelText(gguf_tokenizer({**unreachable, "tokenizer.ggml.pre": "llama-bpe"}))
    assert by_words.encode("wow").tolist() == [0, wow]
    by_merges = ModelText(gguf_tokenizer(unreachable))
    assert wow not in by_merges.encode("wow")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"tokenizer.ggml.model": "t5"}, "tokenizer.ggml.model is 't5'.*gpt2, llama"),
        ({"tokenizer.ggml.model": None}, "tokenizer.ggml.model is None"),
        ({"tokenizer.ggml.pre": "tekken"}, "tokenizer.ggml.pre is 'tekken'.*smollm"),
        ({"tokenizer.ggml.tokens": None}, "no array tokenizer.ggml.tokens"),
        ({"tokenizer.ggml.merges": None}, "no array tokenizer.ggml.merges"),
        ({"tokenizer.ggml.merges": ["a"]}, "merges must be pairs"),
        ({"tokenizer.ggml.merges": ["a nosuch"]}, "merges do not fit.*nosuch"),
        ({"tokenizer.ggml.token_type": [1]}, "token_type has 1 entries for 270"),
        ({"tokenizer.ggml.token_type": [9] * 270}, "token_type has 9"),
        ({"tokenizer.ggml.eos_token_id": 270}, "eos_token_id is 270.*0 to 269"),
        ({"tokenizer.ggml.add_bos_token": True}, "no tokenizer.ggml.bos_token_id"),
        ({"tokenizer.ggml.model": "llama"}, "no array tokenizer.ggml.scores"),
        ({"tokenizer.ggml.model": ["gpt2"]}, "tokenizer.ggml.model is .'gpt2'."),
        ({"tokenizer.ggml.pre": [7]}, "tokenizer.ggml.pre is .7."),
        ({"tokenizer.ggml.tokens": [1] * 270}, "no array tokenizer.ggml.tokens of str"),
        ({"tokenizer.ggml.token_type": 1}, "token_type is 1; it must be an array"),
        ({"tokenizer.ggml.token_type": [[]] * 270}, "token_type has .."),
        ({"tokenizer.ggml.eos_token_id": "</s>"}, "eos_token_id is '</s>'"),
        ({"tokenizer.chat_template": 7}, "chat_template is 7"),
        ({"tokenizer.chat_template": "{% if %}"}, "mistake in line 1"),
    ],
)
def test_a_tokenizer_that_does_not_add_up_is_named(
    gpt2_metadata: dict[str, Any], change: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(LoadError, match=complaint):
        ModelText(gguf_tokenizer({**gpt2_metadata, **change}))
