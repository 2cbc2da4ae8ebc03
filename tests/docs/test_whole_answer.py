"""The example allocator does what its page says, beside the default one on the same traffic."""

import importlib
from collections.abc import Callable
from typing import Any

import pytest

from markdown_pages import ROOT
from plancha.contracts import Allocator, Geometry, Site
from plancha.failure import RequestFailed
from plancha.options import OptionsError
from plancha.testing.allocator_conformance import check_allocator
from plancha.testing.executors import ChainExecutor, chain
from plancha.testing.simulation import Simulation
from plancha_allocators.paged import paged
from plancha_schedulers.fcfs import fcfs

GEOMETRY = Geometry(blocks=16, context_length=256, vocabulary=264, stop_ids=())
SITE = Site(
    max_sequences=8,
    max_batched_tokens=64,
    max_waiting=100,
    block_size=16,
    model="none",
    vocabulary=260,
)
PROMPT, OUTPUT = [120] * 20, 60  # 80 tokens: 5 blocks in the end, 2 at first


@pytest.fixture
def whole_answer(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "docs" / "examples" / "whole_answer")
    return importlib.import_module("whole_answer").whole_answer


def served(allocator: Callable[[Site], Allocator]) -> tuple[Simulation, int]:
    """Six answers in a pool that holds three of them whole; the most that ran at once."""
    simulation = Simulation(ChainExecutor(GEOMETRY), SITE, lambda site: fcfs({}, site), allocator)
    streams = [simulation.submit(PROMPT, OUTPUT) for _ in range(6)]
    simulation.run()
    assert all(simulation.outputs[each] == chain(PROMPT, OUTPUT) for each in streams)
    return simulation, max(len(plan.slots) for plan in simulation.plans)


def test_it_keeps_the_contract(whole_answer: Any) -> None:
    check_allocator(lambda site: whole_answer({}, site))


def test_nobody_who_runs_gives_way_where_others_would(whole_answer: Any) -> None:
    simulation, together = served(lambda site: whole_answer({}, site))
    assert (simulation.planner.preemptions, together) == (0, 3)

    simulation, together = served(lambda site: paged({"prefix_cache": False}, site))
    assert simulation.planner.preemptions > 0
    assert together > 3


def test_what_can_never_fit_is_refused_with_the_numbers(whole_answer: Any) -> None:
    geometry = Geometry(blocks=4, context_length=256, vocabulary=264, stop_ids=())
    simulation = Simulation(
        ChainExecutor(geometry),
        SITE,
        lambda site: fcfs({}, site),
        lambda site: whole_answer({}, site),
    )
    with pytest.raises(RequestFailed, match="needs 5 KV blocks") as caught:
        simulation.submit(PROMPT, OUTPUT)
    assert caught.value.failure.code == "kv_pool_exceeded"


def test_it_has_no_options(whole_answer: Any) -> None:
    with pytest.raises(OptionsError, match="takes no keys"):
        whole_answer({"prefix_cache": True}, SITE)
