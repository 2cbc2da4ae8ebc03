"""A tokenizer rebuilt from the `tokenizer.*` metadata of a GGUF file."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from plancha.contracts import LoadError
from plancha_text.gguf_vocabulary import (
    SPECIAL,
    USED,
    GgufVocabulary,
    Kind,
    require_length,
    required_list,
)
from plancha_text.model_tokenizer import ModelTokenizer, special_token
from plancha_text.pre_tokenizers import pre_tokenizer
from plancha_text.token_bytes import Spelling, byte_level, sentencepiece


def gguf_tokenizer(metadata: Mapping[str, Any]) -> ModelTokenizer:
    """From the metadata's own keys (see `gguf_metadata`); models `gpt2` and `llama`.

    Raises `LoadError` that names the key for a tokenizer that is not known or does not add up.
    """
    model = metadata.get("tokenizer.ggml.model")
    template = metadata.get("tokenizer.chat_template")
    if template is not None and not isinstance(template, str):
        raise LoadError(f"tokenizer.chat_template is {template!r}; it must be a string.")
    if not isinstance(model, str) or model not in _ALGORITHMS:
        raise LoadError(
            f"tokenizer.ggml.model is {model!r}, which is not supported; "
            f"known are {', '.join(_ALGORITHMS)}."
        )
    vocabulary = GgufVocabulary.read(metadata)
    algorithm = _ALGORITHMS[model](metadata, vocabulary)
    tokenizer = algorithm.tokenizer
    tokenizer.add_special_tokens([special_token(text) for text in vocabulary.texts(*SPECIAL)])
    user_defined = vocabulary.texts(Kind.USER_DEFINED)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in user_defined])
    return ModelTokenizer(
        tokenizer=tokenizer,
        token_bytes=vocabulary.token_bytes(algorithm.spelling),
        special=vocabulary.ids(*SPECIAL),
        prefix=_prefix(metadata, vocabulary, algorithm.adds_bos),
        named={name: vocabulary.entries[token][0] for name, token in vocabulary.named.items()},
        chat_template=template,
    )


@attrs.frozen(eq=False)
class _Algorithm:
    tokenizer: Tokenizer
    spelling: Spelling
    adds_bos: bool  # unless the file says otherwise


def _byte_level(metadata: Mapping[str, Any], vocabulary: GgufVocabulary) -> _Algorithm:
    pre = pre_tokenizer(metadata.get("tokenizer.ggml.pre", "default"))
    merges = [merge.split(" ") for merge in required_list(metadata, "tokenizer.ggml.merges", str)]
    if any(len(merge) != 2 for merge in merges):
        raise LoadError("tokenizer.ggml.merges must be pairs of tokens with a space between.")
    model = _merging(vocabulary, [(left, right) for left, right in merges], pre.whole_words)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = pre.normalizer()
    tokenizer.pre_tokenizer = pre.build()
    tokenizer.decoder = decoders.ByteLevel()
    return _Algorithm(tokenizer, byte_level, pre.adds_bos)


def _sentencepiece(metadata: Mapping[str, Any], vocabulary: GgufVocabulary) -> _Algorithm:
    scores = required_list(metadata, "tokenizer.ggml.scores", float)
    require_length("tokenizer.ggml.scores", scores, len(vocabulary.entries))
    model = _merging(vocabulary, _merges_by_score(vocabulary, scores))
    model.unk_token = next(iter(vocabulary.texts(Kind.UNKNOWN)), None)
    model.fuse_unk = True
    model.byte_fallback = True
    tokenizer = Tokenizer(model)
    steps: list[normalizers.Normalizer] = [normalizers.Replace(" ", "▁")]
    if metadata.get("tokenizer.ggml.add_space_prefix", True):
        steps.insert(0, normalizers.Prepend("▁"))
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return _Algorithm(tokenizer, sentencepiece, adds_bos=True)


_ALGORITHMS = {"gpt2": _byte_level, "llama": _sentencepiece}


def _merges_by_score(vocabulary: GgufVocabulary, scores: Sequence[float]) -> list[tuple[str, str]]:
    """SentencePiece joins the neighbours whose joint piece has the best score; as ranked merges."""
    pieces = vocabulary.ids(Kind.NORMAL, Kind.USER_DEFINED)
    ranked = []
    for text, token in pieces.items():
        for cut in range(1, len(text)):
            left, right = text[:cut], text[cut:]
            if left in pieces and right in pieces:
                rank = (-scores[token], pieces[left], pieces[right])
                ranked.append((rank, (left, right)))
    ranked.sort()
    return [merge for _, merge in ranked]


def _merging(
    vocabulary: GgufVocabulary, merges: list[tuple[str, str]], whole_words: bool = False
) -> models.BPE:
    try:
        return models.BPE(vocabulary.ids(*USED), merges, ignore_merges=whole_words)
    except Exception as error:  # what the library raises is a bare Exception
        raise LoadError(f"tokenizer.ggml.merges do not fit the vocabulary: {error}.") from error


def _prefix(
    metadata: Mapping[str, Any], vocabulary: GgufVocabulary, by_default: bool
) -> tuple[int, ...]:
    if not metadata.get("tokenizer.ggml.add_bos_token", by_default):
        return ()
    if "bos_token" not in vocabulary.named:
        raise LoadError("the tokenizer adds a BOS, but there is no tokenizer.ggml.bos_token_id.")
    return (vocabulary.named["bos_token"],)
