"""A model's text: the `plancha.contracts.Text` of a GGUF file or a Hugging Face folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from plancha.contracts import LoadError
from plancha.failure import invalid
from plancha.messages import Int32s
from plancha_text.chat_template import ChatTemplate
from plancha_text.encoding import encode_ids, require_unicode
from plancha_text.folder_tokenizer import folder_tokenizer
from plancha_text.gguf_metadata import read_metadata
from plancha_text.gguf_tokenizer import gguf_tokenizer
from plancha_text.least_tokens import LeastTokens
from plancha_text.model_tokenizer import ModelTokenizer
from plancha_text.token_stream import TokenStream, TokenTexts

END_TOKENS = (
    "</s>",
    "<eos>",
    "<|end|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|eom_id|>",
    "<|eot_id|>",
    "<|im_end|>",
    "<end_of_turn>",
)
"""Special tokens that end an answer in every model that has them."""


class ModelText:
    """Strings to ids and back, for one model. Immutable, so any thread may use it."""

    def __init__(self, tokenizer: ModelTokenizer) -> None:
        special = set(tokenizer.special.values())
        self._tokenizer = tokenizer
        self._prefix = np.array(tokenizer.prefix, dtype=np.int32)
        self._least_tokens = LeastTokens.of(tokenizer)
        self._texts = TokenTexts.of(tokenizer.token_bytes)
        self._texts_without_special = TokenTexts.of(
            None if token in special else text for token, text in enumerate(tokenizer.token_bytes)
        )
        source = tokenizer.chat_template
        self._chat_template = None if source is None else ChatTemplate(source, tokenizer)

    @property
    def vocabulary(self) -> int:
        """Ids 0 to vocabulary - 1; those `has_text` denies have no text of their own."""
        return len(self._tokenizer.token_bytes)

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Special tokens that end an answer by their name; the checkpoint may know more."""
        special = self._tokenizer.special
        return tuple(sorted(special[text] for text in END_TOKENS if text in special))

    def has_text(self, token: int) -> bool:
        """Whether the tokenizer knows this id."""
        return 0 <= token < self.vocabulary and self._tokenizer.token_bytes[token] is not None

    def token_bytes(self, token: int) -> bytes:
        """An id's own text, a special token's too; b"" for ids without text."""
        return self._texts.data[token] if 0 <= token < self.vocabulary else b""

    def plain_bytes(self, token: int) -> bytes:
        """An id's own text; b"" for special tokens and for ids without text."""
        return self._texts_without_special.data[token] if 0 <= token < self.vocabulary else b""

    def least_tokens(self, prompt: str) -> int:
        """A lower bound of the length of `encode(prompt)`, in about a millisecond a megabyte."""
        return self._least_tokens(prompt)

    def encode(self, prompt: str) -> Int32s:
        """A raw prompt: special tokens parsed, the BOS in front if the model wants one.

        Raises `RequestFailed` (param "prompt") for lone surrogates.
        """
        require_unicode(prompt, "prompt")
        ids = encode_ids(self._tokenizer.tokenizer, prompt)
        size = self._prefix.size
        if np.array_equal(ids[:size], self._prefix):
            return ids
        return np.concatenate([self._prefix, ids])

    def encode_chat(self, messages: Sequence[Mapping[str, Any]]) -> Int32s:
        """Messages through the model's chat template, content never parsed as special tokens.

        Raises `RequestFailed` (param "messages") when the template refuses or there is none.
        """
        if self._chat_template is None:
            raise invalid(
                "messages",
                "This model has no chat template; send a prompt to /v1/completions instead.",
                "no_chat_template",
            )
        return self._chat_template.encode(messages)

    def stream(
        self, *, stop: tuple[str, ...], min_tokens: int, skip_special_tokens: bool
    ) -> TokenStream:
        """A new stream; a stop string counts only if completed by token `min_tokens` or later.

        Raises `RequestFailed` (param "stop") for a stop string no text can hold.
        """
        for index, text in enumerate(stop):
            if not text:
                raise invalid("stop", f"stop[{index}] is empty; it must have a character.")
            require_unicode(text, "stop", f"stop[{index}]")
        texts = self._texts_without_special if skip_special_tokens else self._texts
        return TokenStream(texts, stop, min_tokens)


def from_gguf(path: Path) -> ModelText:
    """The text of a model in a GGUF file. Raises `LoadError` naming the file and the key."""
    try:
        return ModelText(gguf_tokenizer(read_metadata(path, "tokenizer.")))
    except LoadError as error:
        raise _of(path, error) from error


def from_path(path: Path) -> ModelText:
    """Of a checkpoint of either kind. Raises `LoadError`."""
    return from_folder(path) if path.is_dir() else from_gguf(path)


def from_folder(path: Path) -> ModelText:
    """The text of a model in a Hugging Face folder. Raises `LoadError` naming the file."""
    try:
        return ModelText(folder_tokenizer(path))
    except LoadError as error:
        raise _of(path, error) from error


def _of(path: Path, error: LoadError) -> LoadError:
    message = str(error)
    return error if str(path) in message else LoadError(f"{path}: {message}")
