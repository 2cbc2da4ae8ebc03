"""Outputs of one prompt after the first: whoever of them ends, the others go on."""

from itertools import combinations
from typing import Any

import pytest

OUTPUTS = 4


@pytest.mark.parametrize(
    "gone", [each for size in range(1, OUTPUTS) for each in combinations(range(OUTPUTS), size)]
)
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_those_that_are_cancelled_take_none_of_the_others_with_them(
    rig: Any, gone: tuple[int, ...], steps: int
) -> None:
    simulation = rig.chain()
    first = simulation.submit([120] * 100, 5, n=OUTPUTS)  # two steps for the prompt
    for _ in range(steps):
        simulation.step()
    for index in gone:
        simulation.cancel(first + index)
    simulation.run()
    for index in range(OUTPUTS):
        reason = simulation.finished[first + index].reason
        assert reason == ("cancelled" if index in gone else "length")
        if index not in gone:
            assert len(simulation.outputs[first + index]) == 5
    assert simulation.planner._siblings._held == {}


def test_nobody_is_waited_for_when_all_who_waited_are_gone(rig: Any) -> None:
    simulation = rig.chain()
    first = simulation.submit([120] * 100, 5, n=3)
    simulation.step()
    siblings = simulation.planner._siblings
    assert siblings.waits_for(first)
    simulation.cancel(first + 1)
    assert siblings.waits_for(first)
    simulation.cancel(first + 2)
    assert not siblings.waits_for(first)
    simulation.run()
    assert simulation.finished[first].reason == "length"
