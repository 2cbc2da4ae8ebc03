"""From what a client calls for, once it is in ids, to what a worker is asked."""

import time
from collections.abc import Iterator

from plancha.calls.call import Call
from plancha.calls.prompts import Prompts
from plancha.contracts import Text
from plancha.messages import InferenceRequest, Int32s
from plancha.streams.outbox import Stream


def request_of(
    call: Call, encoded: tuple[Int32s, ...], prompts: Prompts, *, request_id: str, model: str
) -> InferenceRequest:
    """The call, whose prompts are `encoded` now."""
    return InferenceRequest(
        id=request_id,
        tenant=call.tenant,
        prompts=encoded,
        sampling=call.sampling,
        max_tokens=call.max_tokens,
        clamp=call.clamp,
        max_tokens_param=call.max_tokens_param,
        n=call.n,
        timeout_s=call.timeout_s,
        grammar=call.grammar,
        namespace=f"{call.tenant}\0{call.cache_salt}".encode(),
        public_tokens=tuple(prompts.public_tokens(prompt) for prompt in encoded),
        logprobs=call.logprobs,
        prompt_logprobs=call.prompt_logprobs,
        stop_strings=bool(call.stop),
        label=call.label,
        model=model,
        created_s=time.time(),
    )


def streams_of(
    call: Call, request: InferenceRequest, text: Text, numbers: Iterator[int], *, plain: bool
) -> tuple[Stream, ...]:
    """An outbox for each of the request's outputs. `plain`: nobody looks at them but the client."""
    return tuple(
        Stream(
            number=next(numbers),
            index=index,
            prompt=prompt,
            text=text.stream(
                stop=call.stop,
                min_tokens=call.sampling.min_tokens,
                skip_special_tokens=call.skip_special_tokens,
            ),
            alternatives=call.logprobs,
            plain=plain and call.logprobs is None and not call.stop,
            stop_strings=request.stop_strings,
        )
        for index, prompt in enumerate(
            prompt for prompt in request.prompts for _ in range(request.n)
        )
    )
