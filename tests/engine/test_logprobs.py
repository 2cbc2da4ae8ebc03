"""Log-probabilities read from logits, against torch's log_softmax."""

from typing import Any

import numpy as np
import torch

from plancha.messages import Int32s
from plancha.plans import Join
from plancha.sampling import Sampling
from plancha_engine.logprobs import LogprobReader

VOCABULARY = 50
LOGITS = np.random.default_rng(7).normal(size=(4, 64)).astype(np.float32) * 5
EXPECTED = torch.log_softmax(torch.from_numpy(LOGITS[:, :VOCABULARY]).double(), dim=1).numpy()


def join(slot: int, **fields: Any) -> Join:
    return Join(
        slot=slot,
        stream=slot,
        token_ids=np.zeros(3, np.int32),
        prompt_tokens=3,
        stop_ids=(),
        seed=0,
        sampling=Sampling(),
        **fields,
    )


def column(*values: int) -> Int32s:
    return np.array(values, np.int32)


def test_chosen_and_best_are_those_of_the_models_own_distribution() -> None:
    reader = LogprobReader(8, VOCABULARY)
    for slot, asked in ((5, 3), (2, None), (7, 0), (1, 5)):
        reader.join(join(slot, logprobs=asked))
    slots, tokens = column(5, 2, 7, 1), column(11, 12, 49, 0)
    logits = LOGITS.copy()
    copied = reader.copy(logits, slots)
    logits[:] = 0  # as a sampler may
    read = reader.read(copied, slots, tokens)
    assert read is not None
    for row in (0, 2, 3):
        np.testing.assert_allclose(read.chosen[row], EXPECTED[row, tokens[row]], atol=1e-5)
    for row, width in ((0, 3), (3, 5)):
        best = np.argsort(-EXPECTED[row])[:width]
        assert read.top_ids[row, :width].tolist() == best.tolist()
        np.testing.assert_allclose(read.top[row, :width], EXPECTED[row, best], atol=1e-5)


def test_nothing_is_read_when_nobody_asked_and_a_slot_forgets_who_left() -> None:
    reader = LogprobReader(4, VOCABULARY)
    reader.join(join(1, logprobs=2))
    assert reader.copy(LOGITS[:1], column(1)) is not None
    reader.join(join(1))
    assert reader.copy(LOGITS[:1], column(1)) is None
    assert reader.read(None, column(1), column(3)) is None


def test_a_certain_token_has_logarithm_zero_and_the_impossible_none() -> None:
    reader = LogprobReader(1, 3)
    reader.join(join(0, logprobs=3))
    logits = np.array([[0.0, -np.inf, -np.inf]], np.float32)
    read = reader.read(reader.copy(logits, column(0)), column(0), column(0))
    assert read is not None
    assert read.chosen.tolist() == [0.0]
    assert read.top[0].tolist() == [0.0, -np.inf, -np.inf]
