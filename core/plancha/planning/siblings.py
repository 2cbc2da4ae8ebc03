"""Outputs of one prompt after the first: they wait until it is computed, to share its blocks."""

from collections.abc import Callable, Iterator

import attrs

from plancha.planning.batch import Batch
from plancha.sequence import Sequence


@attrs.define(kw_only=True, eq=False)
class Siblings:
    """Those that are not lined up yet. Works for the planner."""

    batch: Batch
    alive: Callable[[int], Sequence | None]  # by stream: accepted and not ended
    # By their first one's stream, and then by their own.
    _held: dict[int, dict[int, Sequence]] = attrs.field(factory=dict, init=False)

    def hold(self, sequence: Sequence) -> bool:
        """Whether it is to wait for its first one."""
        parent = sequence.parent
        if parent is None or self.alive(parent.stream) is None:
            return False
        self._held.setdefault(parent.stream, {})[sequence.stream] = sequence
        return True

    def waits_for(self, stream: int) -> bool:
        """Whether anybody waits for that one."""
        return stream in self._held

    def forget(self, sequence: Sequence) -> None:
        """It ended."""
        parent = sequence.parent
        held = self._held.get(parent.stream) if parent is not None else None
        if parent is not None and held is not None:
            held.pop(sequence.stream, None)
            if not held:
                del self._held[parent.stream]

    def released(self) -> Iterator[Sequence]:
        """Those whose prompt is computed by now, and are to line up.

        If a prompt's first output ended before that, the next one computes it and answers for it.
        """
        for stream in list(self._held):
            first = self.alive(stream)
            if first is not None and not self._is_computed(first):
                continue
            outputs = list(self._held.pop(stream, {}).values())
            if first is None and outputs and not _had_its_prompt(outputs[0].parent):
                heir, *rest = outputs
                heir.parent = None
                for sequence in rest:
                    sequence.parent = heir
                if rest:
                    self._held[heir.stream] = {each.stream: each for each in rest}
                yield heir
            else:
                yield from outputs

    def _is_computed(self, sequence: Sequence) -> bool:
        if sequence.slot is None:
            return False
        return bool(self.batch.computed[sequence.slot] >= sequence.prompt_tokens)


def _had_its_prompt(ended: Sequence | None) -> bool:
    return ended is not None and ended.prefilled >= ended.prompt_tokens
