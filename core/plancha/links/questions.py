"""What gateways of one worker ask it and each other, on its way there and back."""

from collections import OrderedDict
from collections.abc import Callable
from itertools import count

import attrs

from plancha.links.request_id import gateway_of
from plancha.messages import Answer, Ask

WORKER = ""
"""Whom a question names that the worker answers itself; no gateway is called so."""

MOST_OPEN = 4096
"""Questions without an answer; the oldest is given up when there are more."""

Say = Callable[[Ask | Answer], None]


@attrs.frozen(eq=False)
class Question:
    """Who asked, by which number, and whom."""

    asker: Say
    number: int
    asked: str  # a gateway's name, or `WORKER`


class Questions:
    """Takes each question to the gateway that its request's id names, and the answer back.

    Questions for the worker go upstream as all it hears does: `to_worker` only numbers them.
    """

    def __init__(self) -> None:
        self._gateways: dict[str, Say] = {}
        self._open: OrderedDict[int, Question] = OrderedDict()
        self._numbers = count()

    def join(self, gateway: str, say: Say) -> None:
        """The gateway of that name can be asked."""
        self._gateways[gateway] = say

    def leave(self, gateway: str, say: Say) -> None:
        """It is gone: it knows nothing any more. One that has taken its name meanwhile stays."""
        if self._gateways.get(gateway) == say:
            del self._gateways[gateway]
        for number, question in list(self._open.items()):
            if question.asker == say:
                del self._open[number]
            elif question.asked == gateway:
                self._give_up(number)

    def ask(self, ask: Ask, asker: Say) -> None:
        """Pass it on; nobody of that name: answer that nothing is known."""
        name = gateway_of(ask.request_id)
        if name not in self._gateways:
            asker(Answer(ask.number))
            return
        self._gateways[name](self._numbered(ask, asker, name))

    def to_worker(self, ask: Ask, asker: Say) -> Ask:
        """The question as the worker should hear it, whose `answer` will name `WORKER`."""
        return self._numbered(ask, asker, WORKER)

    def answer(self, answer: Answer, gateway: str) -> None:
        """Take it back to who asked. Nobody asked that gateway, or no longer: nothing to do."""
        question = self._open.get(answer.number)
        if question is not None and question.asked == gateway:
            del self._open[answer.number]
            question.asker(attrs.evolve(answer, number=question.number))

    def _numbered(self, ask: Ask, asker: Say, asked: str) -> Ask:
        if len(self._open) >= MOST_OPEN:
            self._give_up(next(iter(self._open)))
        number = next(self._numbers)
        self._open[number] = Question(asker, ask.number, asked)
        return attrs.evolve(ask, number=number)

    def _give_up(self, number: int) -> None:
        question = self._open.pop(number)
        question.asker(Answer(question.number))
