"""The parent's part in a scrape: one gateway was asked, and the figures of all are wanted."""

from collections.abc import Sequence
from itertools import count

import anyio
import attrs

from plancha_app.child import Child
from plancha_app.labelled_figures import family, labelled
from plancha_app.words import Collect, Collected, Render, Rendered

PATIENCE_S = 2.0
"""For the gateways to answer; those that hang are left out, and are said not to be up."""


@attrs.define(eq=False)
class _Round:
    missing: set[str]
    texts: dict[str, str] = attrs.field(factory=dict)  # by a gateway's number
    complete: anyio.Event = attrs.field(factory=anyio.Event)


class GatewayFigures:
    """Asks each gateway for what it renders. The parent answers, since it lives when they do not,
    and when the worker does not.
    """

    def __init__(self, worker: Child, gateways: Sequence[Child]) -> None:
        self._worker = worker
        self._gateways = gateways
        self._rounds: dict[int, _Round] = {}
        self._numbers = count()

    async def answer(self, asker: Child, question: Collect) -> None:
        """Tell the gateway that asks."""
        asker.tell(Collected(question.number, await self.collect()))

    async def collect(self) -> str:
        """What all gateways render, by their numbers, and what the parent itself knows of them."""
        number = next(self._numbers)
        asked = self._rounds[number] = _Round({_number(each) for each in self._gateways})
        for gateway in self._gateways:
            gateway.tell(Render(number))
        try:
            with anyio.move_on_after(PATIENCE_S):
                await asked.complete.wait()
        finally:
            del self._rounds[number]
        return labelled("gateway", dict(sorted(asked.texts.items()))) + self._own(asked)

    def rendered(self, gateway: Child, answer: Rendered) -> None:
        """What one of them says. Nobody waits for it any more: nothing to do."""
        asked = self._rounds.get(answer.number)
        if asked is not None:
            asked.texts[_number(gateway)] = answer.text
            asked.missing.discard(_number(gateway))
            if not asked.missing:
                asked.complete.set()

    def _own(self, asked: _Round) -> str:
        up = {_number(each): float(_number(each) in asked.texts) for each in self._gateways}
        starts = {each.name: float(each.starts) for each in (self._worker, *self._gateways)}
        return family(
            "plancha_gateway_up", "gauge", "1: the gateway told its figures.", "gateway", up
        ) + family(
            "plancha_process_starts_total",
            "counter",
            "Processes started in this place, the first and those after one that died or hung.",
            "process",
            starts,
        )


def _number(gateway: Child) -> str:
    return gateway.name.rpartition("-")[2]
