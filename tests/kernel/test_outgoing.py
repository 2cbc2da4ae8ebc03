"""What can be coalesced on its way to the worker, and what must not be lost by it."""

from plancha.links.outgoing import Outgoing
from plancha.messages import Answer, Cancel, Controls, Pause, Resume, Truncate


async def test_the_newest_word_about_a_stream_counts() -> None:
    outgoing = Outgoing()
    for control in (Pause(1), Pause(2), Resume(1), Truncate(2, 5)):
        outgoing.control(control)

    assert await outgoing.take() == [Controls((Resume(1), Truncate(2, 5)))]


async def test_a_pause_never_takes_the_place_of_an_end() -> None:
    outgoing = Outgoing()
    for control in (Cancel(1), Pause(1), Truncate(2, 5), Resume(2), Truncate(3, 4), Cancel(3)):
        outgoing.control(control)

    assert await outgoing.take() == [Controls((Cancel(1), Truncate(2, 5), Cancel(3)))]


async def test_answers_are_all_kept() -> None:
    outgoing = Outgoing()
    outgoing.answer(Answer(1, None))
    outgoing.answer(Answer(2, None))

    assert await outgoing.take() == [Answer(1, None), Answer(2, None)]
