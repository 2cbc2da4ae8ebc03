"""Every built-in scheduler keeps the contract, and the suite would notice one that does not."""

import importlib.util
import random
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Any

import pytest

from plancha.contracts import Allocator, Scheduler, Site
from plancha.sequence import Sequence
from plancha.testing.scheduler_conformance import (
    check_nobody_starves,
    check_order,
    check_replay,
    check_scheduler,
    check_slots_are_used,
)
from plancha_allocators.paged import paged
from plancha_schedulers.fair_queue import fair_queue
from plancha_schedulers.fcfs import Fcfs, fcfs
from plancha_schedulers.priority_preempt import priority_preempt

Factory = Callable[[Mapping[str, Any], Site], Scheduler]
EXAMPLE = Path(__file__).parents[2] / "docs/examples/shortest_first/shortest_first.py"


def allocator(site: Site) -> Allocator:
    return paged({}, site)


def shortest_first(options: Mapping[str, Any], site: Site) -> Scheduler:
    """The documentation's example, from its file: it need not be installed."""
    spec = importlib.util.spec_from_file_location("shortest_first_example", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made: Scheduler = module.shortest_first(options, site)
    return made


@pytest.mark.parametrize("factory", [fcfs, fair_queue, priority_preempt, shortest_first])
def test_the_contract_is_kept(factory: Factory) -> None:
    check_scheduler(lambda site: factory({}, site), allocator)


class Forgets(Fcfs):
    """Whoever comes back."""

    def add(self, sequence: Sequence, now: float) -> None:
        if not sequence.preemptions:
            super().add(sequence, now)


class KeepsTheDead(Fcfs):
    def remove(self, sequence: Sequence) -> None:
        pass


class OffersTwice(Fcfs):
    def waiting(self, now: float) -> Iterator[Sequence]:
        yield from self._line
        yield from self._line[:1]


class TurnsWhenLookedAt(Fcfs):
    def waiting(self, now: float) -> Iterator[Sequence]:
        self._line.append(self._line.pop(0)) if self._line else None
        return iter(self._line)


class NamesTheWaiting(Fcfs):
    def victims(self, running: Seq[Sequence], for_: Sequence) -> Iterator[Sequence]:
        return iter([*running, *self._line])


@pytest.mark.parametrize(
    ("faulty", "complaint"),
    [
        (Forgets, "wait and are not offered"),
        (KeepsTheDead, "do not wait and are offered"),
        (OffersTwice, "offered twice"),
        (TurnsWhenLookedAt, "changed the order"),
        (NamesTheWaiting, "do not run"),
    ],
)
def test_a_faulty_order_is_noticed(faulty: type[Fcfs], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        for seed in range(5):
            check_order(lambda site: faulty(), seed)


class LastComeFirstServed(Fcfs):
    def waiting(self, now: float) -> Iterator[Sequence]:
        return reversed(self._line)


class OneAtATime(Fcfs):
    """Batching is not for everybody."""

    def __init__(self) -> None:
        super().__init__()
        self.running = 0

    def waiting(self, now: float) -> Iterator[Sequence]:
        return iter(self._line if not self.running else ())

    def joined(self, sequence: Sequence, cached: int) -> None:
        super().joined(sequence, cached)
        self.running += 1

    def remove(self, sequence: Sequence) -> None:
        self.running -= sequence not in self._line
        super().remove(sequence)


def test_a_scheduler_that_starves_somebody_is_noticed() -> None:
    with pytest.raises(AssertionError, match="never joined"):
        check_nobody_starves(lambda site: LastComeFirstServed(), allocator, "even", 500)


def test_a_scheduler_that_leaves_slots_empty_is_noticed() -> None:
    with pytest.raises(AssertionError, match="slots are empty while"):
        check_slots_are_used(lambda site: OneAtATime(), allocator, 0)


def test_a_scheduler_that_throws_dice_is_noticed() -> None:
    dice = random.Random(7)

    class Dice(Fcfs):
        def waiting(self, now: float) -> Iterator[Sequence]:
            return iter(dice.sample(self._line, len(self._line)))

    with pytest.raises(AssertionError, match="differs when the same traffic comes again"):
        check_replay(lambda site: Dice(), allocator, 0)
