"""The request fields that every door knows, and those that are known and do nothing yet."""

from collections.abc import Mapping
from typing import Any

from plancha.sampling import MOST_BIAS, RANGES, Sampling
from plancha_transports.fields import (
    Check,
    boolean,
    label,
    logit_bias_within,
    number_from,
    stop_token_ids,
    stops,
    string,
    strings,
    whole_number_from,
)
from plancha_transports.response_format import response_format
from plancha_transports.timeouts import timeout

SAMPLING: Mapping[str, Check[Any]] = {
    "temperature": number_from(*RANGES["temperature"]).described(
        "0 always takes the best token; 1 samples as the model says.",
        default=Sampling().temperature,
    ),
    "top_k": whole_number_from(-1).described(
        "Sample among so many of the best tokens; 0 and -1 mean all.", default=Sampling().top_k
    ),
    "top_p": number_from(*RANGES["top_p"]).described(
        "Sample among the best tokens that together have this probability; 0: the best token.",
        default=Sampling().top_p,
    ),
    "min_p": number_from(*RANGES["min_p"]).described(
        "Sample among tokens with at least this share of the best one's probability.",
        default=Sampling().min_p,
    ),
    "seed": whole_number_from(-(2**63), 2**64 - 1).described(
        "The same seed and request give the same output."
    ),
    "repetition_penalty": number_from(*RANGES["repetition_penalty"]).described(
        "Over 1: tokens of prompt and output become less likely.",
        default=Sampling().repetition_penalty,
    ),
    "frequency_penalty": number_from(*RANGES["frequency_penalty"]).described(
        "Taken off a token's logit once for each time it is in the output.",
        default=Sampling().frequency_penalty,
    ),
    "presence_penalty": number_from(*RANGES["presence_penalty"]).described(
        "Taken off a token's logit if it is in the output.", default=Sampling().presence_penalty
    ),
    "logit_bias": logit_bias_within(MOST_BIAS).described(
        "Added to the logits of these token ids.", default={}
    ),
    "stop_token_ids": stop_token_ids.described("Token ids that end an output.", default=[]),
    "min_tokens": whole_number_from(0).described(
        "Nothing ends an output before so many tokens.", default=Sampling().min_tokens
    ),
    "ignore_eos": boolean.described(
        "Go on after the model's own end of sequence.", default=Sampling().ignore_eos
    ),
}
"""Fields that go to `Sampling` under their own names."""

IN_OPENAIS_BOOKS = "Of OpenAI's own books; any value does nothing."

NOTED: Mapping[str, Check[Any]] = {
    "metadata": strings.described(IN_OPENAIS_BOOKS),
    "prompt_cache_key": string.described(IN_OPENAIS_BOOKS),
    "safety_identifier": string.described(IN_OPENAIS_BOOKS),
    "user": string.described(IN_OPENAIS_BOOKS),
}
"""Fields for OpenAI's own books, which clients send to every server; any value does nothing."""

NEVER_NULL = ("model", "model_id")
"""A null there is a mistake, not a wish for any model."""

EVERYWHERE: Mapping[str, Check[Any]] = {
    **SAMPLING,
    "model": string.described("A name of GET /v1/models; without one, the model there is."),
    "model_id": string.described("Another name for `model`."),
    "stop": stops.described("The output ends before the first of these.", default=[]),
    "skip_special_tokens": boolean.described(
        "Leave the text of special tokens out of the output.", default=True
    ),
    "request_id": label.described("Your own name for the request; it is echoed."),
    "cache_salt": label.described(
        "Share cached beginnings of prompts only with requests of the same salt."
    ),
    "response_format": response_format.described(
        "The output is JSON: any object, or as a JSON schema says."
    ),
    "timeout_s": timeout.described(
        "Seconds from acceptance until the answer must be complete; else it ends with an error."
    ),
    **NOTED,
}

UNSUPPORTED: Mapping[str, tuple[object, ...]] = {
    "audio": (),
    "best_of": (1,),
    "chat_template": (),
    "chat_template_kwargs": ({},),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "include_stop_str_in_output": (False,),
    "length_penalty": (1, 1.0),
    "logprobs": (False,),
    "modalities": (["text"],),
    "n": (1,),
    "parallel_tool_calls": (True,),
    "prediction": (),
    "priority": (0,),
    "prompt_logprobs": (),
    "reasoning_effort": (),
    "service_tier": ("auto", "default"),
    "spaces_between_special_tokens": (True,),
    "store": (False,),
    "suffix": (),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "truncate_prompt_tokens": (),
    "use_beam_search": (False,),
    "verbosity": (),
    "web_search_options": (),
}
"""Known fields of OpenAI's and vLLM's APIs that do nothing here yet, with their defaults there."""
