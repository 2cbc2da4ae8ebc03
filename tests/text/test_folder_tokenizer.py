"""Tokenizers of Hugging Face folders, held against transformers."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer
from transformers import AutoTokenizer

from plancha.contracts import LoadError
from plancha_text.text import ModelText, from_folder

LICENSE = (Path(__file__).parents[2] / "LICENSE").read_text()
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] | trim }}<|im_end|>\n{% endfor %}"
    "{%- if add_generation_prompt %}\n<|im_start|>assistant\n{% endif %}"
)
CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": "<s>",
    "eos_token": {"content": "<|im_end|>", "__type": "AddedToken"},
    "clean_up_tokenization_spaces": False,
    "chat_template": TEMPLATE,
}


def byte_level() -> Tokenizer:
    """Like Qwen's: composed, byte-level, with special tokens and a thinking one that is not."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(LICENSE.splitlines(), trainer)
    return with_added_tokens(tokenizer)


def sentencepiece_like() -> Tokenizer:
    """Like Llama 2's: spaces are ▁, put before every stretch of text, and bytes for the rest."""
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    special = ["<unk>", *[f"<0x{byte:02X}>" for byte in range(256)]]
    trainer = BpeTrainer(vocab_size=500, special_tokens=special, show_progress=False)
    trained.train_from_iterator([f"▁{word}" for word in LICENSE.split()], trainer)
    model = json.loads(trained.to_str())["model"]
    merges = [(left, right) for left, right in model["merges"]]
    tokenizer = Tokenizer(
        models.BPE(model["vocab"], merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1, right=0),
        ]
    )
    tokenizer.add_special_tokens(["<unk>"])
    return with_added_tokens(tokenizer)


def with_added_tokens(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.add_special_tokens(["<s>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken("<think>", special=False, normalized=False)])
    bos = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])
    tokenizer.enable_truncation(100)
    tokenizer.enable_padding(length=8)
    return tokenizer


KINDS = {"byte_level": byte_level, "sentencepiece": sentencepiece_like}


@pytest.fixture(scope="module", params=list(KINDS))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("model")
    KINDS[request.param]().save(str(path / "tokenizer.json"))
    write(path, "tokenizer_config.json", CONFIG)
    return path


@pytest.fixture(scope="module")
def text(folder: Path) -> ModelText:
    return from_folder(folder)


@pytest.fixture(scope="module")
def reference(folder: Path) -> Any:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    return tokenizer


def write(folder: Path, name: str, content: Any) -> None:
    (folder / name).write_text(json.dumps(content), encoding="utf-8")


WORDS = st.lists(
    st.sampled_from([*LICENSE.split()[:200], "<think>", "<|im_end|>", "<s>", "é", "e\u0301", "🦊"])
).map(" ".join)


@settings(deadline=None, max_examples=50)
@given(prompt=st.one_of(WORDS, st.text(max_size=40)))
def test_prompts_have_the_ids_of_transformers(text: ModelText, reference: Any, prompt: str) -> None:
    expected = reference(prompt).input_ids
    bos = reference.bos_token_id
    if expected[:2] == [bos, bos]:
        del expected[0]  # one BOS, where transformers has two
    assert text.encode(prompt).tolist() == expected


@settings(deadline=None, max_examples=50)
@given(contents=st.lists(st.one_of(WORDS, st.text(max_size=40)), min_size=1, max_size=4))
def test_chats_have_the_ids_of_transformers(
    text: ModelText, reference: Any, contents: list[str]
) -> None:
    messages = [{"role": "user", "content": content} for content in contents]
    if any(special in content for content in contents for special in ("<|im_end|>", "<s>")):
        return  # text here, control tokens there
    rendered = reference.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    expected = reference(rendered, add_special_tokens=False).input_ids
    assert text.encode_chat(messages).tolist() == expected


@settings(deadline=None, max_examples=50)
@given(prompt=WORDS)
def test_output_decodes_as_transformers_does(text: ModelText, reference: Any, prompt: str) -> None:
    ids = reference(prompt, add_special_tokens=False).input_ids
    stream = text.stream(stop=(), min_tokens=0, skip_special_tokens=False)
    decoded = "".join([stream.push(token) for token in ids]) + stream.finish()
    before = reference.convert_tokens_to_ids("<think>")  # so that no leading space is dropped
    assert f"<think>{decoded}" == reference.decode([before, *ids])


def test_every_id_up_to_the_last_has_text(text: ModelText, folder: Path) -> None:
    size = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
    assert text.vocabulary == size
    assert all(text.has_text(token) for token in range(size))
    assert not text.has_text(size)


def test_the_end_of_a_turn_is_known_by_its_name(text: ModelText, reference: Any) -> None:
    assert text.stop_ids == (reference.eos_token_id,)


@pytest.mark.parametrize(("adds_bos", "count"), [(True, 1), (False, 0)])
def test_the_configuration_says_whether_there_is_a_bos(
    folder: Path, tmp_path: Path, adds_bos: bool, count: int
) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.post_processor = None
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    write(tmp_path, "tokenizer_config.json", {**CONFIG, "add_bos_token": adds_bos})
    bos = tokenizer.token_to_id("<s>")
    assert from_folder(tmp_path).encode("hello").tolist().count(bos) == count


def test_the_chat_template_may_be_in_a_file_of_its_own(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    write(tmp_path, "tokenizer_config.json", CONFIG)
    chat = [{"role": "user", "content": "x"}]

    def rendered() -> str:
        text = from_folder(tmp_path)
        stream = text.stream(stop=(), min_tokens=0, skip_special_tokens=False)
        return "".join([stream.push(token) for token in text.encode_chat(chat).tolist()]).strip()

    write(tmp_path, "chat_template.json", {"chat_template": "from json"})
    assert rendered() == "from json"
    named = [{"name": "tools", "template": "no"}, {"name": "default", "template": "default one"}]
    write(tmp_path, "chat_template.json", {"chat_template": named})
    assert rendered() == "default one"
    (tmp_path / "chat_template.jinja").write_text("from jinja")
    assert rendered() == "from jinja"


def test_a_missing_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"tokenizer\.json does not exist"):
        from_folder(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("tokenizer.json", b"{", r"tokenizer\.json cannot be read"),
        ("tokenizer.json", b"[]", r"tokenizer\.json must hold a JSON object, not list"),
        ("tokenizer.json", b'{"model": {"type": "Nope"}}', r"tokenizer\.json is not a tokenizer"),
        ("tokenizer_config.json", b"nonsense", r"tokenizer_config\.json cannot be read"),
        ("chat_template.jinja", b"{% for %}", r"chat template has a mistake in line 1"),
        ("chat_template.jinja", b"\xff", r"chat_template\.jinja cannot be read"),
    ],
)
def test_a_damaged_file_is_named(
    folder: Path, tmp_path: Path, name: str, content: bytes, complaint: str
) -> None:
    (tmp_path / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    (tmp_path / name).write_bytes(content)
    with pytest.raises(LoadError, match=complaint):
        from_folder(tmp_path)


@pytest.mark.parametrize("decoder", [None, decoders.WordPiece(), decoders.Metaspace("▁", "first")])
def test_only_decoders_that_are_bytes_one_after_the_other_load(
    folder: Path, tmp_path: Path, decoder: decoders.Decoder | None
) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.decoder = decoder
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    if isinstance(decoder, decoders.Metaspace):
        from_folder(tmp_path)
    else:
        with pytest.raises(LoadError, match=r"decoder .* is not supported"):
            from_folder(tmp_path)
