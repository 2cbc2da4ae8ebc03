"""First come, first served."""

from typing import Any

import numpy as np
import pytest

from plancha.contracts import Site
from plancha.messages import InferenceRequest
from plancha.options import OptionsError
from plancha.sampling import Sampling
from plancha.sequence import Sequence
from plancha_schedulers.fcfs import Fcfs, fcfs

SITE = Site(
    max_sequences=8,
    max_batched_tokens=64,
    max_waiting=8,
    block_size=16,
    model="tiny",
    vocabulary=260,
)


def sequence(arrival: int) -> Sequence:
    request = InferenceRequest(
        id=str(arrival), tenant="default", prompts=(), sampling=Sampling(), max_tokens=1
    )
    return Sequence(
        request=request,
        stream=arrival,
        arrival=arrival,
        arrived_s=0.0,
        prompt_tokens=1,
        token_ids=np.zeros(1, np.int32),
        length=1,
        max_length=2,
        stop_ids=(),
        seed=0,
    )


def test_the_line_is_in_order_of_arrival_whatever_comes_back() -> None:
    scheduler = Fcfs()
    one, two, three, four = (sequence(n) for n in range(4))
    for waiting in (two, three, four):
        scheduler.add(waiting, 0.0)
    scheduler.joined(two, 0)
    scheduler.add(one, 1.0)  # preempted, and older than all of them
    assert list(scheduler.waiting(1.0)) == [one, three, four]
    scheduler.remove(three)
    scheduler.remove(two)  # runs: not in the line
    assert list(scheduler.waiting(1.0)) == [one, four]


def test_victims_are_the_later_ones_newest_first() -> None:
    one, two, three, four = (sequence(n) for n in range(4))
    assert list(Fcfs().victims([three, one, four, two], two)) == [four, three]
    assert list(Fcfs().victims([three, one], three)) == []


def test_an_option_is_refused_by_name() -> None:
    options: dict[str, Any] = {"weight": 3}
    with pytest.raises(OptionsError, match="weight"):
        fcfs(options, SITE)
