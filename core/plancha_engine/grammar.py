"""Outputs held to JSON schemas: a matcher for each slot that asked, and the tokens it lets through.

The matcher follows the output token by token. Before a row is sampled, every token that cannot go
on from here is masked; the sequence's stop ids are let through exactly where the JSON is complete,
and are all that is left where nothing more may follow. Ids without text of their own, special
tokens among them, are never let through. A row whose matcher has failed fails as one whose logits
are not numbers.
"""

from collections.abc import Sequence
from functools import lru_cache

import attrs
import numpy as np
import numpy.typing as npt
import structlog
from llguidance import LLMatcher

from plancha.calls.grammar import GrammarError, compile_schema, vocabulary
from plancha.messages import Bools, Int32s, Int64s
from plancha.plans import Join
from plancha_engine.arrays import Float32s
from plancha_engine.kernels.sampling import NOT_FINITE
from plancha_engine.sampler import MASKED

log = structlog.get_logger()

KEPT_GRAMMARS = 32
"""Compiled schemas at their start; the outputs of a request, and a tenant's like requests, share
one. Another tenant's does not: how soon its first token comes would tell who asks for what.
"""


@attrs.define(eq=False)
class _Held:
    """One slot's output. `matcher` None: its schema could not be compiled."""

    stream: int
    matcher: LLMatcher | None
    stop_ids: Int64s
    complete: bool = False  # as of the last mask


class JsonGrammars:
    """See `plancha_engine.sampler.Grammars`. Used by the executor's thread alone.

    `tokens` are the texts of all ids the model may sample, b"" for those that have none.
    """

    def __init__(
        self, tokens: Sequence[bytes], stop_ids: tuple[int, ...], max_sequences: int
    ) -> None:
        tokenizer = vocabulary(tokens, stop_ids)
        self._compiled = lru_cache(KEPT_GRAMMARS)(
            lambda namespace, schema: compile_schema(tokenizer, schema)
        )
        self._held: dict[int, _Held] = {}  # by slot
        self._is_held: Bools = np.zeros(max_sequences, np.bool_)
        self.vocabulary = len(tokens)
        self._words = np.zeros(-(-len(tokens) // 32), np.uint32)  # a bit for each id

    def join(self, join: Join) -> None:
        """Hold the output in `join.slot` to its schema from now on, or to none."""
        self._forget(join.slot)
        if join.grammar is None:
            return
        stop_ids = np.array(join.stop_ids, np.int64)
        self._held[join.slot] = _Held(join.stream, self._matcher(join), stop_ids)
        self._is_held[join.slot] = True

    def leave(self, slots: Int32s) -> None:
        """These slots are empty now."""
        for slot in slots.tolist() if self._held else ():
            self._forget(slot)

    def reset(self) -> None:
        """Every slot is empty now."""
        self._held.clear()
        self._is_held[:] = False

    def mask(self, logits: Float32s, slots: Int32s) -> None:
        """Mask in row r what may not come next in `slots[r]`."""
        for row in self._rows(slots):
            held = self._held[int(slots[row])]
            allowed = self._allowed(held)
            if allowed is None:
                logits[row, : self.vocabulary] = np.nan
            else:
                np.copyto(logits[row, : self.vocabulary], MASKED, where=~allowed)

    def advance(self, slots: Int32s, tokens: Int32s) -> None:
        """Row r has drawn `tokens[r]`, or failed."""
        for row in self._rows(slots):
            held, token = self._held[int(slots[row])], int(tokens[row])
            stops = held.complete and token in held.stop_ids
            if held.matcher is not None and token != NOT_FINITE and not stops:
                held.matcher.consume_token(token)  # what goes wrong shows at the next mask

    def _rows(self, slots: Int32s) -> list[int]:
        """Those that are held to something."""
        return np.flatnonzero(self._is_held[slots]).tolist() if self._held else []

    def _matcher(self, join: Join) -> LLMatcher | None:
        """One that has followed the known output; the library never raises, so it may have failed.

        None: the schema cannot be compiled, although a gateway must have found that it can.
        """
        try:
            matcher = self._compiled(join.namespace, join.grammar or "").deep_copy()
        except GrammarError:
            log.warning("grammar_not_compiled", stream=join.stream)
            return None
        matcher.consume_tokens(join.token_ids[join.prompt_tokens :].tolist())
        return matcher

    def _forget(self, slot: int) -> None:
        self._held.pop(slot, None)
        self._is_held[slot] = False

    def _allowed(self, held: _Held) -> npt.NDArray[np.bool_] | None:
        """By id, whether it may come next. None: nobody can say any more, or nothing may."""
        matcher, words = held.matcher, self._words
        if matcher is None:
            return None
        matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        held.complete = matcher.is_accepting()
        if matcher.is_error() or (matcher.is_stopped() and not held.complete):
            log.warning("grammar_failed", stream=held.stream, reason=matcher.stop_reason())
            return None
        bits = np.unpackbits(words.view(np.uint8), count=self.vocabulary, bitorder="little")
        allowed = bits.view(np.bool_)
        if held.complete:
            allowed[held.stop_ids] = True
        return allowed
