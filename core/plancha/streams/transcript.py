"""A request as it will be kept: what was sent, and what its client has been given of the outputs.

Only of tenants whose setting keeps something. Outputs are gathered as text, so that what is kept is
what was told, stop strings and half characters taken care of.
"""

from collections.abc import Callable, Iterable

import attrs

from plancha.calls.call import Call
from plancha.record import Record
from plancha.streams.outbox import Delta, Stream
from plancha.texts import Exchange


@attrs.define(eq=False)
class Transcript:
    """Gathers one request's outputs until its client has gone."""

    _call: Call = attrs.field(repr=False)
    _keep: Callable[[Exchange], None]
    _outputs: dict[int, list[str]] = attrs.field(factory=dict, repr=False)  # by the output's index

    def add(self, deltas: Iterable[Delta]) -> None:
        """The client has been given these."""
        for delta in deltas:
            if delta.text:
                self._outputs.setdefault(delta.index, []).append(delta.text)

    def end(self, record: Record, streams: tuple[Stream, ...]) -> None:
        """Nothing more will be given to the client."""
        prompts = {id(stream.prompt): stream.prompt.size for stream in streams}
        self._keep(
            Exchange(
                request=record.id,
                tenant=record.tenant,
                model=record.model,
                created=record.created,
                prompts=self._call.prompts,
                messages=self._call.messages,
                outputs=tuple("".join(self._outputs.get(each.index, ())) for each in streams),
                tokens=sum(prompts.values()) + sum(stream.output_tokens for stream in streams),
            )
        )
