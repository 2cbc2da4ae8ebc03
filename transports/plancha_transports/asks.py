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
    boolean,
    read,
    table,
    whole_number,
    whole_number_from,
    wrong,
)
from plancha_transports.known_fields import EVERYWHERE, SAMPLING, UNSUPPORTED
from plancha_transports.options import HttpOptions
from plancha_transports.prompts import Prompt, prompt, prompts

COMPLETION_TOKENS = 16
"""`max_tokens` of /v1/completions when absent, as in OpenAI's API."""

MOST_ALTERNATIVES = 20
"""Reported with a token at most, as in OpenAI's chat API."""


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
        "prompt": prompt,
        "messages": messages,
        "max_completion_tokens": whole_number,
    }
    found = read(body, checks, {**UNSUPPORTED, "stream": (True,)})
    if ("prompt" in found) == ("messages" in found):
        raise invalid("prompt", "Exactly one of prompt and messages must be given.")
    limit = _limit(found, least=1)
    texts = (found["prompt"],) if "prompt" in found else ()
    chat = found.get("messages")
    return Ask(call=_call(body, found, header_label, limit, prompts=texts, messages=chat))


def completion_ask(
    body: Mapping[str, object], header_label: str | None, options: HttpOptions
) -> Ask:
    """`/v1/completions`."""
    checks = {
        **EVERYWHERE,
        **_openai_checks(options),
        "prompt": prompts,
        "echo": boolean,
        "logprobs": whole_number_from(0, MOST_ALTERNATIVES),
    }
    found = read(body, checks, UNSUPPORTED)
    if "prompt" not in found:
        raise invalid("prompt", "prompt is missing.")
    texts = found["prompt"]
    echo = found.get("echo", False)
    limit = _limit(found, least=0 if echo else 1, default=COMPLETION_TOKENS)
    return Ask(
        call=_call(
            body,
            found,
            header_label,
            limit,
            prompts=texts,
            messages=None,
            n=_outputs(found, len(texts), options),
            logprobs=found.get("logprobs"),
            prompt_logprobs=echo and "logprobs" in found,
        ),
        stream=found.get("stream", False),
        include_usage=_include_usage(found),
        echo=echo,
    )


def chat_ask(body: Mapping[str, object], header_label: str | None, options: HttpOptions) -> Ask:
    """`/v1/chat/completions`; without max_tokens as many as fit."""
    checks = {
        **EVERYWHERE,
        **_openai_checks(options),
        "messages": messages,
        "max_completion_tokens": whole_number,
        "logprobs": boolean,
        "top_logprobs": whole_number_from(0, MOST_ALTERNATIVES),
    }
    found = read(body, checks, UNSUPPORTED)
    if "messages" not in found:
        raise invalid("messages", "messages is missing.")
    limit = _limit(found, least=1)
    chat = found["messages"]
    return Ask(
        call=_call(
            body,
            found,
            header_label,
            limit,
            prompts=(),
            messages=chat,
            n=_outputs(found, 1, options),
            logprobs=_chat_alternatives(found),
        ),
        stream=found.get("stream", False),
        include_usage=_include_usage(found),
    )


@attrs.frozen
class _Limit:
    """How many output tokens; `is_default`: nobody asked for them, so fewer will do."""

    tokens: int | None
    param: str = "max_tokens"
    is_default: bool = False


def _openai_checks(options: HttpOptions) -> dict[str, Check]:
    return {
        "stream": boolean,
        "stream_options": table,
        "n": whole_number_from(1, options.max_n),
        "best_of": whole_number,
    }


def _call(
    body: Mapping[str, object],
    found: dict[str, Any],
    header_label: str | None,
    limit: _Limit,
    *,
    prompts: tuple[Prompt, ...],
    messages: tuple[Mapping[str, Any], ...] | None,
    n: int = 1,
    logprobs: int | None = None,
    prompt_logprobs: bool = False,
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
        n=n,
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        cache_salt=found.get("cache_salt", ""),
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


def _outputs(found: dict[str, Any], prompts: int, options: HttpOptions) -> int:
    """How many outputs each of the prompts has."""
    if prompts > options.max_prompts:
        message = f"prompt is a list of {prompts}; there may be {options.max_prompts} at most."
        raise invalid("prompt", message)
    n = int(found.get("n", 1))
    most = max(options.max_prompts, options.max_n)
    if prompts * n > most:
        message = f"n is {n} for {prompts} prompts; outputs may be {most} at most in all."
        raise invalid("n", message)
    if found.get("best_of", n) != n:
        raise wrong("best_of", found["best_of"], f"n, which is {n}: every output is given back")
    return n


def _chat_alternatives(found: dict[str, Any]) -> int | None:
    alternatives = found.get("top_logprobs", 0)
    if found.get("logprobs", False):
        return int(alternatives)
    if alternatives:
        raise invalid("top_logprobs", "top_logprobs is only allowed with logprobs: true.")
    return None


def _include_usage(found: dict[str, Any]) -> bool:
    if "stream_options" not in found:
        return False
    if not found.get("stream", False):
        raise invalid("stream_options", "stream_options is only allowed with stream: true.")
    checks: Mapping[str, Check] = {"include_usage": boolean}
    defaults_only = {"continuous_usage_stats": (False,), "include_obfuscation": (False,)}
    options = read(found["stream_options"], checks, defaults_only, "stream_options.")
    return bool(options.get("include_usage", False))
