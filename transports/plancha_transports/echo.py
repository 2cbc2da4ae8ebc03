"""Prompts that are given back before their outputs."""

from plancha.calls.call import Call
from plancha.contracts import Text
from plancha.streams.outbox import Stream
from plancha_transports.prompts import Prompt
from plancha_transports.token_entries import TokenEntry


class Echo:
    """The prompts of one call as text, and as entries if log-probabilities were asked for."""

    def __init__(self, call: Call, text: Text, streams: tuple[Stream, ...]) -> None:
        self._call = call
        self._text = text
        self._streams = streams
        self._texts = tuple([self._shown(prompt) for prompt in call.prompts])

    def text(self, index: int) -> str:
        """What comes before output `index`."""
        return self._texts[index // self._call.n]

    def entries(self, index: int) -> tuple[TokenEntry, ...] | None:
        """Those of the same prompt, once the output's first token has come, or its end.

        A BOS that the tokenizer added, or a space, is not in the text and has offset 0.
        """
        if not self._call.prompt_logprobs:
            return None
        number = index // self._call.n
        stream = self._streams[number * self._call.n]  # to which the prompt's are reported
        prompt = self._call.prompts[number]
        skip = self._call.skip_special_tokens and not isinstance(prompt, str)
        decoder = self._text.stream(stop=(), min_tokens=0, skip_special_tokens=skip)
        starts, length = [], 0
        for token in stream.prompt.tolist():
            starts.append(length)
            length += len(decoder.push(token))
        added = max(0, length + len(decoder.finish()) - len(self._texts[number]))
        return tuple(
            TokenEntry(token, max(0, start - added), logprob)
            for token, start, logprob in zip(
                stream.prompt.tolist(), starts, [None, *stream.prompt_logprobs], strict=True
            )
        )

    def _shown(self, prompt: Prompt) -> str:
        if isinstance(prompt, str):
            return prompt
        decoder = self._text.stream(
            stop=(), min_tokens=0, skip_special_tokens=self._call.skip_special_tokens
        )
        return "".join([decoder.push(token) for token in prompt]) + decoder.finish()
