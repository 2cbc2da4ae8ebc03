"""From the JSON object of each door to the `Call` it means, with how the answer is to be given."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import attrs

from plancha.calls.call import Call
from plancha.failure import invalid
from plancha.sampling import Sampling
from plancha_transports.chat_messages import messages
from plancha_transports.field_table import FieldTable
from plancha_transports.fields import Check, boolean, whole_number_from, wrong
from plancha_transports.known_fields import EVERYWHERE, NEVER_NULL, SAMPLING, UNSUPPORTED
from plancha_transports.options import HttpOptions
from plancha_transports.prompts import Prompt, prompt, prompts

COMPLETION_TOKENS = 16
"""`max_tokens` of /v1/completions when absent, as in OpenAI's API."""

MOST_ALTERNATIVES = 20
"""Reported with a token at most, as in OpenAI's chat API."""

STREAM_OPTIONS = FieldTable(
    checks={"include_usage": boolean.described("One more chunk, with the usage.", default=False)},
    defaults_only={"continuous_usage_stats": (False,), "include_obfuscation": (False,)},
)

OUTPUT_TOKENS: Mapping[str, Check[Any]] = {
    name: whole_number_from(1).described("Output tokens at most; without it as many as fit.")
    for name in ("max_tokens", "max_completion_tokens")
}

GENERATE_FIELDS = FieldTable(
    checks={
        **EVERYWHERE,
        **OUTPUT_TOKENS,
        "prompt": prompt.described("Either this or messages: text, or token ids."),
        "messages": messages.described("Either this or prompt: a chat."),
    },
    defaults_only={**UNSUPPORTED, "stream": (True,)},
    never_null=NEVER_NULL,
)
"""Of `/generate` and of a WebSocket's "generate" message."""


@cache
def completion_fields(max_n: int) -> FieldTable:
    """Of `/v1/completions`."""
    return FieldTable(
        checks={
            **EVERYWHERE,
            **_openai_checks(max_n),
            "prompt": prompts.described("One or several, as text or as token ids."),
            "max_tokens": whole_number_from(0).described(
                f"Output tokens at most; 0 only with echo. Without it {COMPLETION_TOKENS}, or "
                "fewer where fewer fit."
            ),
            "echo": boolean.described("Give each prompt back before its output.", default=False),
            "logprobs": whole_number_from(0, MOST_ALTERNATIVES).described(
                "Report log-probabilities, with so many alternatives for each token."
            ),
        },
        defaults_only=UNSUPPORTED,
        required=("prompt",),
        never_null=NEVER_NULL,
    )


@cache
def chat_fields(max_n: int) -> FieldTable:
    """Of `/v1/chat/completions`."""
    return FieldTable(
        checks={
            **EVERYWHERE,
            **_openai_checks(max_n),
            **OUTPUT_TOKENS,
            "messages": messages,
            "logprobs": boolean.described("Report log-probabilities.", default=False),
            "top_logprobs": whole_number_from(0, MOST_ALTERNATIVES).described(
                "With logprobs: so many alternatives for each token.", default=0
            ),
        },
        defaults_only=UNSUPPORTED,
        required=("messages",),
        never_null=NEVER_NULL,
    )


def _openai_checks(max_n: int) -> Mapping[str, Check[Any]]:
    return {
        "stream": boolean.described("Answer as server-sent events.", default=False),
        "stream_options": STREAM_OPTIONS.check().described("Only with stream: true."),
        "n": whole_number_from(1, max_n).described("Outputs of each prompt.", default=1),
        "best_of": whole_number_from(1, max_n).described("If given, the same as n."),
    }


@attrs.frozen(kw_only=True)
class Ask:
    """A call, and how its answer is to be given."""

    call: Call
    stream: bool = False
    include_usage: bool = False
    echo: bool = False


def generate_ask(body: Mapping[str, object], header_label: str | None) -> Ask:
    """`/generate` and WebSocket: `prompt` or `messages`; without max_tokens as many as fit."""
    found = GENERATE_FIELDS.read(body)
    if ("prompt" in found) == ("messages" in found):
        raise invalid("prompt", "Exactly one of prompt and messages must be given.")
    texts = (found["prompt"],) if "prompt" in found else ()
    chat = found.get("messages")
    return Ask(call=_call(found, header_label, _limit(found), prompts=texts, messages=chat))


def completion_ask(
    body: Mapping[str, object], header_label: str | None, options: HttpOptions
) -> Ask:
    """`/v1/completions`."""
    found = completion_fields(options.max_n).read(body)
    texts = found["prompt"]
    echo = found.get("echo", False)
    limit = _limit(found, least=0 if echo else 1, default=COMPLETION_TOKENS)
    return Ask(
        call=_call(
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
    found = chat_fields(options.max_n).read(body)
    chat = found["messages"]
    return Ask(
        call=_call(
            found,
            header_label,
            _limit(found),
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


def _call(
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
        model=_model(found),
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
        timeout_s=found.get("timeout_s"),
        grammar=found.get("response_format"),
        label=found.get("request_id", header_label),
    )


def _model(found: dict[str, Any]) -> str | None:
    named = {found[name] for name in ("model", "model_id") if name in found}
    if len(named) > 1:
        raise invalid("model_id", "model and model_id name different models.")
    return named.pop() if named else None


def _limit(found: dict[str, Any], *, least: int = 1, default: int | None = None) -> _Limit:
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
    return bool(found["stream_options"].get("include_usage", False))
