"""A request in words: what a transport hands to the gateway."""

from collections.abc import Mapping
from typing import Any

import attrs

from plancha.sampling import Sampling


@attrs.frozen(kw_only=True)
class Call:
    """A request as a transport understood it: typed and in range, not yet in token ids.

    Exactly one of `prompts` (strings, or token ids) and `messages` (chat) is set. What its client
    said does not show when it is printed.
    """

    model: str | None
    prompts: tuple[str | tuple[int, ...], ...] = attrs.field(default=(), repr=False)
    messages: tuple[Mapping[str, Any], ...] | None = attrs.field(default=None, repr=False)
    sampling: Sampling = attrs.field(factory=Sampling)
    max_tokens: int | None = None
    clamp: bool = False  # max_tokens is a default: fewer where fewer fit
    max_tokens_param: str = "max_tokens"
    stop: tuple[str, ...] = attrs.field(default=(), repr=False)
    skip_special_tokens: bool = True
    n: int = 1
    logprobs: int | None = None  # alternatives reported with each output token
    prompt_logprobs: bool = False
    # Narrows whose cached prompts this one may share.
    cache_salt: str = attrs.field(default="", repr=False)
    timeout_s: float | None = None  # from the worker's acceptance to the last token
    # JSON schema, as text, that the output must follow.
    grammar: str | None = attrs.field(default=None, repr=False)
    label: str | None = None
    traceparent: str | None = None  # the caller's span, as W3C Trace Context writes it
    tenant: str = "default"
