"""The tokenizer of a Hugging Face model folder: tokenizer.json and what stands beside it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
from tokenizers import Tokenizer

from plancha.contracts import LoadError
from plancha_text.model_tokenizer import ModelTokenizer
from plancha_text.token_bytes import Spelling, spelling

_NAMED = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")


def folder_tokenizer(folder: Path) -> ModelTokenizer:
    """From tokenizer.json, tokenizer_config.json and the chat template's own file, if any.

    Raises `LoadError` naming the file that is missing, damaged or of a kind not supported.
    """
    path = folder / "tokenizer.json"
    description = _read(path)
    if description is None:
        raise LoadError(f"{path} does not exist; a tokenizer in another format is not supported.")
    config = _read(folder / "tokenizer_config.json") or {}
    try:
        tokenizer = Tokenizer.from_file(str(path))
        spell = spelling(description.get("decoder"))
    except LoadError as error:
        raise LoadError(f"{path}: {error}") from None
    except Exception as error:  # what the library raises is a bare Exception
        raise LoadError(f"{path} is not a tokenizer: {error}.") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    added = tokenizer.get_added_tokens_decoder()
    named = _named(folder, config)
    return ModelTokenizer(
        tokenizer=tokenizer,
        token_bytes=_token_bytes(tokenizer, spell),
        special={token.content: number for number, token in added.items() if token.special},
        prefix=_prefix(tokenizer, config, named),
        named=named,
        chat_template=_chat_template(folder, config),
    )


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, orjson.JSONDecodeError) as error:
        raise LoadError(f"{path} cannot be read: {error}.") from error
    if not isinstance(found, dict):
        raise LoadError(f"{path} must hold a JSON object, not {type(found).__name__}.")
    return found


def _token_bytes(tokenizer: Tokenizer, spell: Spelling) -> tuple[bytes | None, ...]:
    spelt = {token: spell(text) for text, token in tokenizer.get_vocab(False).items()}
    for token, added in tokenizer.get_added_tokens_decoder().items():
        spelt[token] = added.content.encode()
    return tuple([spelt.get(token) for token in range(max(spelt, default=-1) + 1)])


def _prefix(
    tokenizer: Tokenizer, config: Mapping[str, Any], named: Mapping[str, str]
) -> tuple[int, ...]:
    """`add_bos_token` where the configuration has it; else what post-processing puts in front."""
    adds_bos = config.get("add_bos_token")
    if adds_bos is False:
        return ()
    bare = tokenizer.encode("a", add_special_tokens=False).ids
    full = tokenizer.encode("a", add_special_tokens=True).ids
    starts = (at for at in range(len(full)) if full[at : at + len(bare)] == bare)
    prefix = tuple(full[: next(starts, 0)])
    bos = tokenizer.token_to_id(named["bos_token"]) if "bos_token" in named else None
    if adds_bos is True and not prefix and bos is not None:
        return (bos,)
    return prefix


def _named(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    sources = (_read(folder / "special_tokens_map.json") or {}, config)
    named = {}
    for source in sources:
        for name in _NAMED:
            value = source.get(name)
            text = value.get("content") if isinstance(value, dict) else value
            if isinstance(text, str):
                named[name] = text
    return named


def _chat_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """A file of its own comes before the configuration; of several named ones the default."""
    try:
        return (folder / "chat_template.jinja").read_text(encoding="utf-8")
    except FileNotFoundError:
        pass
    except (OSError, UnicodeDecodeError) as error:
        raise LoadError(f"{folder / 'chat_template.jinja'} cannot be read: {error}.") from error
    own_file = _read(folder / "chat_template.json") or {}
    template = own_file.get("chat_template", config.get("chat_template"))
    if isinstance(template, list):
        named = {entry["name"]: entry["template"] for entry in template}
        template = named.get("default")
    return template if isinstance(template, str) else None
