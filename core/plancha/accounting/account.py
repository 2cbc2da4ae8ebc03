"""What one request has cost: its streams' counts, as far as they are known."""

from collections.abc import Sequence as Seq

import attrs

from plancha.ledger import Counts
from plancha.messages import Cancel, Finished, InferenceRequest
from plancha.record import Outcome
from plancha.sequence import Sequence

WORST_FIRST: tuple[Outcome, ...] = ("stalled", "failed", "cancelled", "completed")
"""A request with several streams is called after the first of these that one of them is."""


@attrs.define(eq=False)
class Output:
    """One stream's part. `input_tokens` is 0 where another output answers for the prompt."""

    prompt: int  # its index in the request
    sequence: Sequence | None  # None: it has ended, and the counts are final
    input_tokens: int = 0
    output_tokens: int = 0
    outcome: Outcome = "completed"
    cancelled_as: Outcome = "cancelled"  # how to call it should it end so
    cut: bool = False  # its gateway has said how much of it is kept
    settled: bool = False  # nothing about it changes any more

    def end(self, finished: Finished, *, gateway_decides: bool) -> None:
        """The worker is done with it."""
        self.sequence = None
        self.input_tokens, self.output_tokens = finished.prompt_tokens, finished.output_tokens
        if finished.reason == "cancelled":
            self.outcome, self.settled = self.cancelled_as, True
            return
        self.outcome = "failed" if finished.reason == "error" else "completed"
        self.settled = self.cut or not gateway_decides

    def truncate(self, keep: int) -> None:
        """Its gateway's last word. While it runs the planner does the cutting.

        Even if it failed: the client had all of its answer before that.
        """
        self.cut = True
        if self.sequence is None and not self.settled:
            self.output_tokens = max(0, min(keep, self.output_tokens))
            self.outcome, self.settled = "completed", True

    def cancel(self, cancel: Cancel) -> None:
        """Nobody is there to say how much is kept: all that was computed."""
        if self.sequence is None:
            self.settled = True
        else:
            self.cancelled_as = cancel.outcome

    def abandon(self, outcome: Outcome, lengths: Seq[int], computed: Seq[int]) -> None:
        """It ends here and now, with what was computed."""
        if self.sequence is not None:
            self.input_tokens, self.output_tokens = self.counted(lengths, computed)
            self.outcome, self.sequence = outcome, None
        self.settled = True

    def counted(self, lengths: Seq[int], computed: Seq[int]) -> tuple[int, int]:
        """Input tokens that it answers for, and output tokens, so far."""
        sequence = self.sequence
        if sequence is None:
            return self.input_tokens, self.output_tokens
        prompt, prefilled, slot = sequence.prompt_tokens, sequence.prefilled, sequence.slot
        if slot is None:
            length = sequence.length
        else:
            length = lengths[slot]
            prefilled = max(prefilled, min(computed[slot], prompt))
        return prefilled if sequence.parent is None else 0, length - prompt


@attrs.define(eq=False)
class Account:
    """A request's streams together."""

    request: InferenceRequest
    outputs: dict[int, Output]  # by stream, in their order
    checkpoint: tuple[int, int, int] = (0, 0, 0)  # as `counted` then
    _first: Output = attrs.field(init=False)
    _cached_tokens: int = attrs.field(default=0, init=False)
    _joined: set[int] = attrs.field(factory=set, init=False)  # prompts of which an output has

    def __attrs_post_init__(self) -> None:
        self._first = next(iter(self.outputs.values()))

    @classmethod
    def of(cls, sequences: tuple[Sequence, ...]) -> "Account":
        """A request that was accepted; `sequences` in the order of its streams."""
        request = sequences[0].request
        outputs = {
            each.stream: Output(index // request.n, each) for index, each in enumerate(sequences)
        }
        return cls(request, outputs)

    @property
    def settled(self) -> bool:
        """Whether all of its streams are."""
        return all(output.settled for output in self.outputs.values())

    @property
    def outcome(self) -> Outcome:
        """Of the request."""
        found = {output.outcome for output in self.outputs.values()}
        return next(each for each in WORST_FIRST if each in found)

    def joined(self, stream: int, cached_tokens: int) -> None:
        """An output entered the batch. Whoever is first of a prompt's says what was found of it.

        Another one may have to compute the prompt again, should the first end before it has, and
        finds what the first had computed: that was no saving.
        """
        prompt = self.outputs[stream].prompt
        if prompt not in self._joined:
            self._joined.add(prompt)
            self._cached_tokens += cached_tokens

    def counted(self, lengths: Seq[int] = (), computed: Seq[int] = ()) -> tuple[int, int, int]:
        """Input, cached and output tokens so far, of those in the batch by its columns."""
        if len(self.outputs) == 1:  # as most, and the batch may be full of them
            input_tokens, output_tokens = self._first.counted(lengths, computed)
        else:
            inputs = [0] * len(self.request.prompts)
            output_tokens = 0
            for output in self.outputs.values():
                own, tokens = output.counted(lengths, computed)
                inputs[output.prompt] = max(inputs[output.prompt], own)
                output_tokens += tokens
            input_tokens = sum(inputs)
        return input_tokens, min(input_tokens, self._cached_tokens), output_tokens

    def counts(self, counted: tuple[int, int, int]) -> Counts:
        """The same for the ledger."""
        input_tokens, cached_tokens, output_tokens = counted
        return Counts(
            request=self.request.id,
            input_tokens=input_tokens,
            cached_tokens=cached_tokens,
            output_tokens=output_tokens,
        )
