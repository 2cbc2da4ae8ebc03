"""The request fields that every door knows, and those that are known and do nothing yet."""

from collections.abc import Mapping

from plancha_transports.fields import (
    Check,
    boolean,
    label,
    logit_bias,
    number,
    stop_token_ids,
    stops,
    string,
    strings,
    whole_number,
)

SAMPLING: Mapping[str, Check] = {
    "temperature": number,
    "top_k": whole_number,
    "top_p": number,
    "min_p": number,
    "seed": whole_number,
    "repetition_penalty": number,
    "frequency_penalty": number,
    "presence_penalty": number,
    "logit_bias": logit_bias,
    "stop_token_ids": stop_token_ids,
    "min_tokens": whole_number,
    "ignore_eos": boolean,
}
"""Fields that go to `Sampling` under their own names; it checks the ranges."""

NOTED: Mapping[str, Check] = {
    "metadata": strings,
    "prompt_cache_key": string,
    "safety_identifier": string,
    "user": string,
}
"""Fields for OpenAI's own books, which clients send to every server; any value does nothing."""

EVERYWHERE: Mapping[str, Check] = {
    **SAMPLING,
    "model": string,
    "model_id": string,
    "max_tokens": whole_number,
    "stop": stops,
    "skip_special_tokens": boolean,
    "request_id": label,
    "cache_salt": label,
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
    "response_format": ({"type": "text"},),
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
