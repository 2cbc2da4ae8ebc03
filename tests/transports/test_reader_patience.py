"""How slowly a client may read: less than that is given up, and nobody who reads along ever is."""

import pytest

from plancha.failure import Failure
from plancha_transports.options import HttpOptions
from plancha_transports.reader_patience import ReaderPatience

STALL_S, DRAIN_S = 30.0, 300.0
FULL = 64 * 1024
DRAINED = FULL // 4


def wait_for(
    patience: ReaderPatience, taken: dict[float, int], now: float = 1000.0
) -> Failure | None:
    """What comes of a full connection whose client takes so many bytes at these seconds from now.

    Looks whenever the patience wants to, and stops when the connection is full no more.
    """
    began, pending = now, FULL
    patience.begin(pending, now)
    events = sorted(taken)
    while pending > DRAINED:
        look = now + patience.next_look_s(now)
        if events and began + events[0] < look:
            now = began + events[0]
            pending -= taken[events.pop(0)]
            continue
        now = look
        if (failure := patience.look(pending, now)) is not None:
            return failure
    return None


def trickle(every_s: float, size: int) -> dict[float, int]:
    return {every_s * step: size for step in range(1, 10_000)}


def test_who_takes_nothing_is_given_up_after_the_stall_timeout() -> None:
    failure = wait_for(ReaderPatience(STALL_S, DRAIN_S), {})
    assert failure is not None
    assert (failure.kind, failure.code) == ("timeout", "stalled")
    assert "nothing for 30 s" in failure.message


@pytest.mark.parametrize("every_s", [1.0, 10.0, 29.0])
def test_who_takes_a_token_within_every_stall_timeout_is_given_up_all_the_same(
    every_s: float,
) -> None:
    patience = ReaderPatience(STALL_S, DRAIN_S)
    failure = wait_for(patience, trickle(every_s, 100))
    assert failure is not None
    assert failure.code == "stalled"
    assert "too little for 300 s" in failure.message


@pytest.mark.parametrize("tokens_per_s", [1, 3, 20])
@pytest.mark.parametrize("every_s", [0.1, 5.0, 29.0])
def test_who_reads_a_token_of_200_bytes_a_second_never_is(
    tokens_per_s: int, every_s: float
) -> None:
    options = HttpOptions()
    assert (options.stall_timeout_s, options.drain_timeout_s) == (STALL_S, DRAIN_S)
    patience = options.patience()
    for start in range(0, 10_000, 1000):  # one patience for all that a connection is full
        failure = wait_for(patience, trickle(every_s, round(200 * tokens_per_s * every_s)), start)
        assert failure is None


def test_it_looks_again_when_something_is_due() -> None:
    patience = ReaderPatience(STALL_S, DRAIN_S)
    patience.begin(100, 0.0)
    assert patience.next_look_s(0.0) == STALL_S
    assert patience.look(90, 25.0) is None
    assert patience.next_look_s(25.0) == STALL_S
    for now in range(50, 300, 25):
        assert patience.look(90 - now // 25, float(now)) is None
    assert patience.next_look_s(275.0) == DRAIN_S - 275
    assert patience.next_look_s(400.0) == 0
