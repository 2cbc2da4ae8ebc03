"""From the JSON object of each door to the `Call` it means, with how the answer is to be given."""

from collections.abc import Mapping
from typing import Any

import attrs

from plancha.call import Call
from plancha.failure import invalid
from plancha.sampling import Sampling
from plancha_transports.chat_messages import messages
from plancha_transports.fields import (
    Check,
    array,
    boolean,
    read,
    string,
    table,
    token_ids,
    whole_number,
    wrong,
)
from plancha_transports.known_fields import EVERYWHERE, SAMPLING, UNSUPPORTED

Prompt = str | tuple[int, ...]

COMPLETION_TOKENS = 16
"""`max_tokens` of /v1/completions when absent, as in OpenAI's API."""


@attrs.frozen(kw_only=True)
class Ask:
    """A call, and how its answer is to be given."""

    call: Call
    stream: bool = False
    include_usage: bool = False
    echo: bool = False


def generate_ask(body: Mapping[str, object], header_label: str | None) -> Ask:
    """`/generate` and WebSocket: `prompt` or `messages`; without max_tokens as many as fit."""
    checks = {
        **EVERYWHERE,
        "prompt": _prompt,
        "messages": messages,
        "max_completion_tokens": whole_number,
    }
    found = read(body, checks, {**UNSUPPORTED, "stream": (True,)})
    if ("prompt" in found) == ("messages" in found):
        raise invalid("prompt", "Exactly one of prompt and messages must be given.")
    limit = _limit(found, least=1)
    prompts = (found["prompt"],) if "prompt" in found else ()
    chat = found.get("messages")
    return Ask(call=_call(body, found, header_label, limit, prompts=prompts, messages=chat))


def completion_ask(body: Mapping[str, object], header_label: str | None, max_prompts: int) -> Ask:
    """`/v1/completions`."""
    checks = {**EVERYWHERE, **_STREAMING, "prompt": _prompts, "echo": boolean}
    found = read(body, checks, UNSUPPORTED)
    if "prompt" not in found:
        raise invalid("prompt", "prompt is missing.")
    prompts = found["prompt"]
    if len(prompts) > max_prompts:
        message = f"prompt is a list of {len(prompts)}; there may be {max_prompts} at most."
        raise invalid("prompt", message)
    echo = found.get("echo", False)
    limit = _limit(found, least=0 if echo else 1, default=COMPLETION_TOKENS)
    return Ask(
        call=_call(body, found, header_label, limit, prompts=prompts, messages=None),
        stream=found.get("stream", False),
        include_usage=_include_usage(found),
        echo=echo,
    )


def chat_ask(body: Mapping[str, object], header_label: str | None) -> Ask:
    """`/v1/chat/completions`; without max_tokens as many as fit."""
    checks = {
        **EVERYWHERE,
        **_STREAMING,
        "messages": messages,
        "max_completion_tokens": whole_number,
    }
    found = read(body, checks, UNSUPPORTED)
    if "messages" not in found:
        raise invalid("messages", "messages is missing.")
    limit = _limit(found, least=1)
    chat = found["messages"]
    return Ask(
        call=_call(body, found, header_label, limit, prompts=(), messages=chat),
        stream=found.get("stream", False),
        include_usage=_include_usage(found),
    )


@attrs.frozen
class _Limit:
    """How many output tokens; `is_default`: nobody asked for them, so fewer will do."""

    tokens: int | None
    param: str = "max_tokens"
    is_default: bool = False


_STREAMING: Mapping[str, Check] = {"stream": boolean, "stream_options": table}


def _call(
    body: Mapping[str, object],
    found: dict[str, Any],
    header_label: str | None,
    limit: _Limit,
    *,
    prompts: tuple[Prompt, ...],
    messages: tuple[Mapping[str, Any], ...] | None,
) -> Call:
    sampling = Sampling(**{name: found[name] for name in SAMPLING if name in found})
    if limit.tokens is not None and sampling.min_tokens > limit.tokens:
        raise invalid(
            "min_tokens",
            f"min_tokens is {sampling.min_tokens}; "
            f"it must not be over {limit.param}, which is {limit.tokens}.",
        )
    return Call(
        model=_model(body, found),
        prompts=prompts,
        messages=messages,
        sampling=sampling,
        max_tokens=limit.tokens,
        max_tokens_param=limit.param,
        clamp=limit.is_default,
        stop=found.get("stop", ()),
        skip_special_tokens=found.get("skip_special_tokens", True),
        label=found.get("request_id", header_label),
    )


def _model(body: Mapping[str, object], found: dict[str, Any]) -> str | None:
    """None when the body names none. A null is a mistake, not a wish for any model."""
    named = [name for name in ("model", "model_id") if name in body]
    for name in named:
        if name not in found:
            raise wrong(name, None, "a model's name, or left out")
    if len({found[name] for name in named}) > 1:
        raise invalid("model_id", "model and model_id name different models.")
    return found[named[0]] if named else None


def _limit(found: dict[str, Any], *, least: int, default: int | None = None) -> _Limit:
    given = [name for name in ("max_completion_tokens", "max_tokens") if name in found]
    if not given:
        return _Limit(default, is_default=True)
    if len({found[name] for name in given}) > 1:
        raise invalid("max_tokens", "max_tokens and max_completion_tokens differ; give one.")
    param = given[0]
    if found[param] < least:
        raise wrong(param, found[param], f"{least} or more")
    return _Limit(found[param], param)


def _include_usage(found: dict[str, Any]) -> bool:
    if "stream_options" not in found:
        return False
    if not found.get("stream", False):
        raise invalid("stream_options", "stream_options is only allowed with stream: true.")
    checks: Mapping[str, Check] = {"include_usage": boolean}
    defaults_only = {"continuous_usage_stats": (False,), "include_obfuscation": (False,)}
    options = read(found["stream_options"], checks, defaults_only, "stream_options.")
    return bool(options.get("include_usage", False))


def _prompt(name: str, value: object) -> Prompt:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise wrong(name, value, "a string or a list of token ids")
    return _ids(name, value)


def _prompts(name: str, value: object) -> tuple[Prompt, ...]:
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list):
        raise wrong(name, value, "a string, a list of strings, of token ids, or of lists of these")
    if not value:
        raise wrong(name, value, "at least one prompt")
    if isinstance(value[0], str):
        return tuple(string(f"{name}[{index}]", each) for index, each in enumerate(value))
    if isinstance(value[0], list):
        return tuple(
            _ids(f"{name}[{index}]", array(f"{name}[{index}]", each))
            for index, each in enumerate(value)
        )
    return (_ids(name, value),)


def _ids(name: str, value: list[object]) -> tuple[int, ...]:
    if not value:
        raise wrong(name, value, "a list of at least one token id")
    return token_ids(name, value)
