"""A gateway's part in a scrape of several: it renders its own figures, and is told those of all."""

from itertools import count

import anyio
import attrs
import structlog

from plancha.failure import RequestFailed
from plancha.links.asking import NO_ANSWER
from plancha.links.message_stream import MessageStream
from plancha.scraping import Scraping
from plancha_app.words import Collect, Collected, Render, Rendered

log = structlog.get_logger()

PATIENCE_S = 5.0
"""With the parent, which has less with the gateways."""


@attrs.define(eq=False)
class _Question:
    number: int
    text: str | None = None
    answered: anyio.Event = attrs.field(factory=anyio.Event)


class FiguresOfAll:
    """Speaks with the parent. However many scrapers come at once, one question is open."""

    def __init__(self, parent: MessageStream, scraping: Scraping) -> None:
        self._parent = parent
        self._scraping = scraping
        self._open: _Question | None = None
        self._numbers = count()

    async def collect(self) -> str:
        """As `Scraping.collect`."""
        question = self._open
        if question is None:
            question = self._open = _Question(next(self._numbers))
            self._parent.push(Collect(question.number))
        with anyio.move_on_after(PATIENCE_S):
            await question.answered.wait()
        if question.text is None:
            if self._open is question:  # the next scraper asks anew
                self._open = None
            raise RequestFailed(NO_ANSWER)
        return question.text

    def collected(self, answer: Collected) -> None:
        """The parent's answer. To a question that was given up: nothing to do."""
        question = self._open
        if question is not None and question.number == answer.number:
            self._open = None
            question.text = answer.text
            question.answered.set()

    def render(self, question: Render) -> None:
        """Tell the parent; nothing if that fails, as if this gateway were not up."""
        try:
            text = "" if self._scraping.render is None else self._scraping.render()
        except Exception:  # a collector's bug ends no stream
            log.exception("figures_failed")
            return
        self._parent.push(Rendered(question.number, text))
