import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio import create_task_group

from plancha.calls.call import Call
from plancha.contracts import Geometry, Scheduler, Site
from plancha.gateway import Gateway
from plancha.options import OptionsError
from plancha.plugins import create, listing
from plancha.testing.embedded import embedded
from plancha.testing.executors import ChainExecutor, chain
from plancha.testing.simulation import Simulation
from plancha_allocators.paged import paged
from plancha_text.byte_text import byte_text

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "shortest_first"
SITE = Site(
    max_sequences=1,
    max_batched_tokens=64,
    max_waiting=100,
    block_size=16,
    model="tiny",
    vocabulary=260,
)
GEOMETRY = Geometry(blocks=64, context_length=256, vocabulary=264, stop_ids=())


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The example's own distribution, built and installed where only this module sees it."""
    target = tmp_path_factory.mktemp("site")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--target", str(target))
    subprocess.run((*pip, *options, str(EXAMPLE)), check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(target)
        yield
    sys.modules.pop("shortest_first", None)


def shortest_first(**options: object) -> Scheduler:
    made: Scheduler = create("plancha.schedulers", "shortest_first", options, SITE)
    return made


def order(patience_s: float, *prompts: int) -> list[int]:
    """Streams in the order in which they join a batch of one."""
    executor = ChainExecutor(GEOMETRY, SITE.block_size)
    simulation = Simulation(
        executor,
        SITE,
        lambda site: shortest_first(patience_s=patience_s),
        lambda site: paged({}, site),
    )
    for tokens in prompts:
        simulation.submit([120] * tokens, 4)
    simulation.run()
    for stream, tokens in enumerate(prompts):
        assert simulation.outputs[stream] == chain([120] * tokens, 4)
    return [join.stream for plan in simulation.plans for join in plan.joins]


@pytest.mark.usefixtures("installed")
def test_an_installed_scheduler_is_listed_with_its_own_distribution() -> None:
    (found,) = [plugin for plugin in listing() if plugin.name == "shortest_first"]

    assert (found.distribution, found.version) == ("plancha-shortest-first", "1.0.0")


@pytest.mark.usefixtures("installed")
def test_by_name_it_orders_a_real_batch() -> None:
    assert order(1000.0, 40, 30, 10, 20) == [2, 3, 1, 0]


@pytest.mark.usefixtures("installed")
def test_whoever_waited_for_too_long_goes_first() -> None:
    assert order(0.0, 40, 30, 10, 20) == [0, 1, 2, 3]


@pytest.mark.usefixtures("installed")
async def test_it_serves_requests_in_a_whole_kernel() -> None:
    executor = ChainExecutor(GEOMETRY, SITE.block_size)
    answers: dict[int, list[int]] = {}

    async def ask(gateway: Gateway, length: int) -> None:
        call = Call(model=None, prompts=((120,) * length,), max_tokens=5)
        async with await gateway.generate(call) as generation:
            answers[length] = [
                delta.token
                async for deltas in generation
                for delta in deltas
                if delta.token is not None
            ]

    async with embedded(executor, byte_text(), scheduler=lambda site: shortest_first()) as kernel:
        async with create_task_group() as clients:
            for length in range(1, 21):
                clients.start_soon(ask, kernel.gateway, length)

    assert answers == {length: chain([120] * length, 5) for length in range(1, 21)}


@pytest.mark.usefixtures("installed")
def test_its_options_are_checked_like_anyones() -> None:
    with pytest.raises(OptionsError, match="patience_s = -1"):
        shortest_first(patience_s=-1)
    with pytest.raises(OptionsError, match='did you mean "patience_s"'):
        shortest_first(patience=1)
