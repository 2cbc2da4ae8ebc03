"""A gateway that is asked for figures, and the test in its parent's place."""

from typing import Any, cast

import anyio
import attrs
import pytest

from plancha.failure import RequestFailed
from plancha.links.message_stream import MessageStream
from plancha.scraping import Scraping
from plancha_app.figures_of_all import FiguresOfAll
from plancha_app.words import Collect, Collected, Render, Rendered


@attrs.define(eq=False)
class Parent:
    heard: list[Any] = attrs.field(factory=list)

    def push(self, word: Any) -> None:
        self.heard.append(word)


def figures_of_all(parent: Parent, scraping: Scraping | None = None) -> FiguresOfAll:
    return FiguresOfAll(cast(MessageStream, parent), scraping or Scraping())


async def test_scrapers_that_come_together_share_one_answer() -> None:
    parent = Parent()
    figures = figures_of_all(parent)
    told: list[str] = []

    async def scrape() -> None:
        told.append(await figures.collect())

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(scrape)
        await anyio.wait_all_tasks_blocked()
        assert parent.heard == [Collect(0)]
        figures.collected(Collected(0, "all"))
    assert told == ["all"] * 5

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scrape)
        await anyio.wait_all_tasks_blocked()
        assert parent.heard == [Collect(0), Collect(1)]
        figures.collected(Collected(0, "late"))
        figures.collected(Collected(1, "new"))
    assert told[-1] == "new"


async def test_a_parent_that_does_not_answer_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("plancha_app.figures_of_all.PATIENCE_S", 0.01)
    parent = Parent()
    figures = figures_of_all(parent)
    for asked in range(1, 3):
        with pytest.raises(RequestFailed) as failed:
            await figures.collect()
        assert failed.value.failure.kind == "unavailable"
        assert len(parent.heard) == asked
    figures.collected(Collected(1, "late"))


def test_what_is_rendered_goes_to_the_parent_and_a_collectors_bug_nowhere() -> None:
    def broken() -> str:
        raise ZeroDivisionError

    parent, scraping = Parent(), Scraping()
    figures = figures_of_all(parent, scraping)
    figures.render(Render(1))
    scraping.render = lambda: "mine"
    figures.render(Render(2))
    scraping.render = broken
    figures.render(Render(3))

    assert parent.heard == [Rendered(1, ""), Rendered(2, "mine")]
