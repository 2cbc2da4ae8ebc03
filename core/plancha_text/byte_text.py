"""The tokenizer of tests and scripted executors: a token is a byte."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from plancha_text.model_tokenizer import ModelTokenizer, special_token
from plancha_text.text import ModelText
from plancha_text.token_bytes import BYTE_ALPHABET

BOS, EOS, IM_START, IM_END = range(256, 260)
SPECIAL = {"<bos>": BOS, "<eos>": EOS, "<|im_start|>": IM_START, "<|im_end|>": IM_END}
CHATML = (
    "{% for message in messages %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_text(*, adds_bos: bool = False, chat_template: str | None = CHATML) -> ModelText:
    """Ids 0 to 255 are the bytes, 256 to 259 `SPECIAL`; so k ASCII characters are k tokens."""
    return ModelText(byte_tokenizer(adds_bos=adds_bos, chat_template=chat_template))


def byte_tokenizer(*, adds_bos: bool = False, chat_template: str | None = CHATML) -> ModelTokenizer:
    """What `byte_text` is made of."""
    tokenizer = Tokenizer(models.BPE(BYTE_ALPHABET, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([special_token(text) for text in SPECIAL])
    return ModelTokenizer(
        tokenizer=tokenizer,
        token_bytes=(*[bytes([byte]) for byte in range(256)], *map(str.encode, SPECIAL)),
        special=SPECIAL,
        prefix=(BOS,) if adds_bos else (),
        named={"bos_token": "<bos>", "eos_token": "<eos>"},
        chat_template=chat_template,
    )
