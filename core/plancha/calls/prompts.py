"""From a call's words to token ids, off the event loop and within the context."""

from collections.abc import Callable

import anyio
import anyio.to_thread
import attrs
import numpy as np

from plancha.calls.call import Call
from plancha.contracts import Text
from plancha.failure import invalid
from plancha.messages import Int32s
from plancha.sampling import Sampling

TOKENISER_THREADS = 2


@attrs.frozen(kw_only=True, eq=False)
class Prompts:
    """Tokenises for one model; `public` are prompts' beginnings whose cached blocks all share."""

    text: Text
    context_length: int
    public: tuple[Int32s, ...]
    _threads: anyio.CapacityLimiter = attrs.field(
        factory=lambda: anyio.CapacityLimiter(TOKENISER_THREADS), init=False
    )

    def check_ids(self, sampling: Sampling) -> None:
        """Raises `RequestFailed` for ids that the model does not have."""
        self._check_known("logit_bias", tuple(token for token, _ in sampling.logit_bias))
        self._check_known("stop_token_ids", sampling.stop_token_ids)

    async def encode(self, call: Call) -> tuple[Int32s, ...]:
        """Each prompt's ids, or those of the one that the messages are.

        Raises `RequestFailed`: text that cannot be encoded, unknown ids, nothing, or more than the
        context holds.
        """
        if call.messages is not None:
            messages = call.messages
            ids = await self._off_loop(lambda: self.text.encode_chat(messages))
            if ids.size == 0:
                raise invalid("messages", "The model's chat template makes nothing of these.")
            return (ids,)
        if not call.prompts:
            raise invalid("prompt", "There is no prompt; there must be at least one.")
        return tuple([await self._encode(prompt) for prompt in call.prompts])

    def public_tokens(self, prompt: Int32s) -> int:
        """Length of the longest public prefix that this prompt begins with."""
        lengths = [
            ids.size
            for ids in self.public
            if ids.size <= prompt.size and (prompt[: ids.size] == ids).all()
        ]
        return max(lengths, default=0)

    async def _encode(self, prompt: str | tuple[int, ...]) -> Int32s:
        least = self.text.least_tokens(prompt) if isinstance(prompt, str) else len(prompt)
        if least > self.context_length:  # told before megabytes are looked at for nothing
            raise invalid(
                "prompt",
                f"The context holds {self.context_length} tokens; "
                f"this prompt has at least {least}.",
                "context_length_exceeded",
            )
        if isinstance(prompt, str):
            ids = await self._off_loop(lambda: self.text.encode(prompt))
        else:
            self._check_known("prompt", prompt)
            ids = np.array(prompt, dtype=np.int32)
        if ids.size == 0:
            raise invalid("prompt", "The prompt is empty; it must have at least one token.")
        return ids

    async def _off_loop(self, encode: Callable[[], Int32s]) -> Int32s:
        return await anyio.to_thread.run_sync(encode, limiter=self._threads)

    def _check_known(self, param: str, tokens: tuple[int, ...]) -> None:
        for token in tokens:
            if not (0 <= token < self.text.vocabulary and self.text.has_text(token)):
                raise invalid(
                    param,
                    f"{param} names token {shortened(token)}, which this model does not have; "
                    f"ids go from 0 to {self.text.vocabulary - 1}.",
                )


def shortened(value: object) -> str:
    """A client's value as an error may repeat it."""
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
