"""A gateway's questions, which its worker or another gateway answers."""

from itertools import count

import anyio
import attrs

from plancha.failure import Failure, RequestFailed
from plancha.links.link import LinkLost, Sender
from plancha.messages import Answer, Ask, Topic

PATIENCE_S = 5.0
MOST_OPEN = 1024

NO_ANSWER = Failure("unavailable", "The part of the server that knows did not answer.")


@attrs.define(eq=False)
class _Question:
    answered: anyio.Event = attrs.field(factory=anyio.Event)
    answer: Answer | None = None


class Asking:
    """Sends questions, and brings each answer to who waits for it."""

    def __init__(self) -> None:
        self._open: dict[int, _Question] = {}
        self._numbers = count()

    async def ask(
        self,
        link: Sender,
        topic: Topic,
        request_id: str = "",
        tenant: str = "",
        *,
        any_tenant: bool = False,
    ) -> Answer:
        """What whoever knows says of the topic.

        Raises `RequestFailed` when there is no answer in time, or it is that nobody can say.
        """
        if len(self._open) >= MOST_OPEN:
            raise RequestFailed(NO_ANSWER)
        number = next(self._numbers)
        self._open[number] = question = _Question()
        try:
            with anyio.move_on_after(PATIENCE_S):
                await link.send(Ask(number, request_id, tenant, topic, any_tenant))
                await question.answered.wait()
        except LinkLost:
            pass
        finally:
            del self._open[number]
        if question.answer is None:
            raise RequestFailed(NO_ANSWER)
        if question.answer.failure is not None:
            raise RequestFailed(question.answer.failure)
        return question.answer

    def answered(self, answer: Answer) -> None:
        """Nobody waits for it any more: nothing to do."""
        question = self._open.get(answer.number)
        if question is not None:
            question.answer = answer
            question.answered.set()

    def give_up(self) -> None:
        """No answer will come any more."""
        for question in self._open.values():
            question.answered.set()
