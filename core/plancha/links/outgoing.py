"""What a gateway, or a link, has to tell the worker and can coalesce until it is taken."""

import anyio

from plancha.messages import Answer, Cancel, Control, Controls, Truncate


class Outgoing:
    """Controls, the newest per stream, however fast they come; and answers. One taker."""

    def __init__(self) -> None:
        self._controls: dict[int, Control] = {}
        self._answers: list[Answer] = []
        self._news = anyio.Event()

    def control(self, control: Control) -> None:
        """Say this of a stream. A pause or its end never takes the place of the stream's end."""
        waiting = self._controls.get(control.stream)
        if not isinstance(waiting, Cancel | Truncate) or isinstance(control, Cancel | Truncate):
            self._controls[control.stream] = control
            self._news.set()

    def answer(self, answer: Answer) -> None:
        """Answer another gateway's question."""
        self._answers.append(answer)
        self._news.set()

    async def take(self) -> list[Controls | Answer]:
        """Wait until there is something; all of it, controls first."""
        await self._news.wait()
        self._news = anyio.Event()
        taken: list[Controls | Answer] = list(self._answers)
        if self._controls:
            taken.insert(0, Controls(tuple(self._controls.values())))
        self._controls, self._answers = {}, []
        return taken
