"""A parent's child, which is a process that only repeats what it was told to do."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest

from plancha.contracts import LoadError
from plancha_app.child import Child
from plancha_app.deployment import Deployment, Model, Server
from plancha_app.words import FromChild, Listening, Setup, Update, written

HANG_S = 60

REPEATING = """
import os, signal, time
import anyio
from plancha.links.link import LinkLost
from plancha_app.child_process import run
from plancha_app.words import Drain, Listening, Update, read

async def work(parent, deployment, link):
    parent.push(Listening((deployment.model.name,)))
    if deployment.model.name == "hanging":
        await anyio.sleep(0)
        while True:
            time.sleep(1)
    if deployment.model.name == "computing":
        await anyio.to_thread.run_sync(time.sleep, 4)
        parent.push(Listening(("computed",)))
    if deployment.model.name == "crashing":
        os.kill(os.getpid(), signal.SIGSEGV)
    while True:
        match await parent.receive():
            case Update(text):
                parent.push(Listening((read(text).model.name,)))
            case Drain() if deployment.model.name == "stuck":
                parent.close()
                await anyio.sleep_forever()
            case Drain():
                return

run(work)
"""


@attrs.define(eq=False)
class Place:
    """A child that serves the deployment of the moment."""

    deployment: Deployment = attrs.field(factory=Deployment)
    said: list[str] = attrs.field(factory=list)
    child: Child = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.child = Child(
            name="one",
            module="repeating",
            setup=self.setup,
            heard=self.heard,
            hang_timeout_s=self.deployment.server.hang_timeout_s,
        )

    def setup(self) -> Setup:
        return Setup(written(self.deployment), "/nowhere", "one")

    def heard(self, child: Child, word: FromChild) -> None:
        if isinstance(word, Listening):
            self.said += word.addresses

    def rename(self, name: str) -> None:
        self.deployment = attrs.evolve(self.deployment, model=Model(name=name))
        self.child.update(Update(written(self.deployment)))

    async def hear(self, name: str) -> None:
        with anyio.fail_after(HANG_S):
            while name not in self.said:  # noqa: ASYNC110
                await anyio.sleep(0.01)


@pytest.fixture(autouse=True)
def repeating(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "repeating.py").write_text(REPEATING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@asynccontextmanager
async def kept(place: Place) -> AsyncIterator[None]:
    """While its process is kept alive; the place is given up by then or at the end."""
    with anyio.fail_after(HANG_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(place.child.keep)
            yield
            place.child.stop()


def while_starting(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], None]) -> None:
    """Let `act` happen between a process's start and the first word to it, once."""
    module, function = name.rsplit(".", 1)
    original = getattr(__import__(module), function)
    acts = [act]

    async def slowly(*args: Any, **kwargs: Any) -> Any:
        made = await original(*args, **kwargs)
        if acts:
            acts.pop()()
        return made

    monkeypatch.setattr(f"plancha_app.child.{name}", slowly)


async def test_a_child_does_as_it_is_told_and_is_told_again() -> None:
    place = Place(Deployment(model=Model(name="a")))
    async with kept(place):
        await place.hear("a")
        place.rename("b")
        await place.hear("b")
        place.child.drain()
        await place.child.gone.wait()
    assert place.said == ["a", "b"]


@pytest.mark.parametrize("step", ["anyio.open_process", "asyncio.open_unix_connection"])
@pytest.mark.parametrize("told", ["drain", "stop"])
async def test_who_is_told_to_end_while_a_process_starts_is_not_forgotten(
    step: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place()
    while_starting(monkeypatch, step, getattr(place.child, told))
    async with kept(place):
        await place.child.gone.wait()
    assert place.said == []


@pytest.mark.parametrize("step", ["anyio.open_process", "asyncio.open_unix_connection"])
async def test_what_changes_while_a_process_starts_reaches_it(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(Deployment(model=Model(name="a")))
    while_starting(monkeypatch, step, lambda: place.rename("b"))
    async with kept(place):
        await place.hear("b")


async def test_a_process_that_says_it_has_ended_and_does_not_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("plancha_app.child.PARTING_S", 0.1)
    place = Place(Deployment(model=Model(name="stuck")))
    async with kept(place):
        await place.hear("stuck")
        place.child.drain()
        await place.child.gone.wait()


async def test_a_process_that_the_system_cannot_start_now_is_started_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = Place(Deployment(model=Model(name="a")))
    place.child.restarts.ready(0.0)  # before it died

    def fail() -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    while_starting(monkeypatch, "anyio.open_process", fail)
    async with kept(place):
        await place.hear("a")


def place_of(model: str, hang_timeout_s: float) -> Place:
    return Place(Deployment(model=Model(name=model), server=Server(hang_timeout_s=hang_timeout_s)))


async def test_a_process_whose_event_loop_stands_still_is_replaced_and_tells_where_it_stood(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("plancha_app.child.HUNG_PARTING_S", 0.1)
    place = place_of("hanging", 0.4)
    async with kept(place):
        await place.hear("hanging")
        place.rename("a")
        await place.hear("a")
    assert 'repeating.py", line ' in capfd.readouterr().err


async def test_a_thread_that_computes_for_long_is_no_hanging_process() -> None:
    place = place_of("computing", 2.0)
    async with kept(place):
        await place.hear("computed")
    assert place.said == ["computing", "computed"]


async def test_a_process_that_always_dies_before_it_is_ready_is_given_up_with_its_signal() -> None:
    place = place_of("crashing", 30.0)
    with anyio.fail_after(HANG_S), pytest.raises(LoadError) as given_up:
        await place.child.keep()
    assert place.said == ["crashing"] * 4
    assert str(given_up.value) == (
        "The process one ended 4 times before it was ready; the last one was killed by SIGSEGV."
    )


async def test_a_process_that_always_hangs_before_it_is_ready_is_given_up_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("plancha_app.child.HUNG_PARTING_S", 0.1)
    monkeypatch.setattr("plancha_app.restarts.MOST_TRIES", 1)
    place = place_of("hanging", 0.4)
    with anyio.fail_after(HANG_S), pytest.raises(LoadError, match=r"said nothing for 0\.4 s"):
        await place.child.keep()
