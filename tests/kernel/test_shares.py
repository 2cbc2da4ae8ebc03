"""A worker's frame in parts: each gateway's own, and nothing of another's."""

import numpy as np

from plancha.links.shares import first_stream, shares
from plancha.messages import Finished, Frame, Joined, Logprobs, PromptLogprobs
from plancha.testing.link_conformance import IDLE, frame


def logprobs(values: list[int]) -> Logprobs:
    column = np.array(values, np.float32)
    table = column[:, None]
    return Logprobs(column, table.astype(np.int32), table)


def test_a_frame_is_split_so_that_every_row_has_one_owner() -> None:
    a, b, c = (first_stream(number) for number in (0, 3, 5))
    streams = np.array([b, a, b + 1, a + 9], np.int64)
    whole = Frame(
        streams,
        np.array([10, 11, 12, 13], np.int32),
        (Joined(c, 1), Joined(a, 2)),
        (Finished(b, "stop", 1, 1),),
        IDLE,
        logprobs([0, 1, 2, 3]),
        (PromptLogprobs(c, 1, logprobs([7])),),
    )

    parts = shares(whole)

    assert set(parts) == {0, 3, 5}
    assert parts[0].streams.tolist() == [a, a + 9]
    assert parts[0].tokens.tolist() == [11, 13]
    assert parts[0].joined == (Joined(a, 2),)
    assert parts[3].tokens.tolist() == [10, 12]
    assert parts[3].finished == whole.finished
    assert parts[3].logprobs is not None
    assert parts[3].logprobs.chosen.tolist() == [0, 2]
    assert parts[5].streams.size == 0
    assert parts[5].joined == (Joined(c, 1),)
    assert parts[5].prompt_logprobs == whole.prompt_logprobs
    assert all(part.load == IDLE for part in parts.values())


def test_a_frame_of_one_gateway_is_passed_on_as_it_is() -> None:
    whole = frame(first_stream(4), 1)

    assert shares(whole) == {4: whole}
