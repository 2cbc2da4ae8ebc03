"""The sampler against a plain one that sorts everything, and against published rules."""

import numpy as np
import numpy.typing as npt
import pytest

from plancha.plans import Join
from plancha.sampling import Sampling
from plancha_engine.arrays import Float32s
from plancha_engine.sampler import Sampler

VOCABULARY = 1000


def sampler_of(*parameters: Sampling, vocabulary: int, seeds: tuple[int, ...] = ()) -> Sampler:
    """Slot i samples by `parameters[i]`; everyone's prompt is the ids 65, 65, 66."""
    sampler = Sampler(len(parameters), vocabulary)
    for slot, sampling in enumerate(parameters):
        seed = seeds[slot] if seeds else slot
        prompt = np.array([65, 65, 66], np.int32)
        sampler.join(Join(slot, slot, prompt, 3, (7, 9), seed, sampling))
    return sampler


def draws(logits: Float32s, sampling: Sampling, count: int) -> npt.NDArray[np.int64]:
    """How often each id is drawn, by as many sequences with seeds of their own."""
    sampler = sampler_of(*[sampling] * count, vocabulary=logits.size)
    slots = np.arange(count, dtype=np.int32)
    lengths = np.full(count, 3, np.int32)
    tokens, failed = sampler.sample(
        np.tile(logits, (count, 1)), slots, lengths, np.zeros((count, 8), np.int32)
    )
    assert not failed.any()
    return np.bincount(tokens, minlength=logits.size)


def kept_probabilities(logits: Float32s, sampling: Sampling) -> npt.NDArray[np.float64]:
    """What may be drawn and how probably: temperature, top-k, top-p, min-p, over a full sort."""
    scaled = logits.astype(np.float64) / sampling.temperature
    weights = np.exp(scaled - scaled.max())
    order = np.argsort(-weights, kind="stable")
    if sampling.top_k > 0:
        order = order[: sampling.top_k]
    before = np.cumsum(weights[order]) - weights[order]
    order = order[before < sampling.top_p * weights[order].sum()]
    order = order[weights[order] >= sampling.min_p]
    kept = np.zeros(logits.size)
    kept[order] = weights[order] / weights[order].sum()
    return kept


def chi_squared(counts: npt.NDArray[np.int64], expected: npt.NDArray[np.float64]) -> float:
    likely = expected * counts.sum() > 5
    wanted = expected[likely] * counts.sum()
    distance: np.float64 = (((counts[likely] - wanted) ** 2) / wanted).sum()
    return float(distance) / max(int(likely.sum()) - 1, 1)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(temperature=0.7),
        Sampling(temperature=2.0, top_k=20),
        Sampling(top_p=0.8),
        Sampling(top_p=0.3, temperature=1.5),
        Sampling(min_p=0.1),
        Sampling(top_k=40, top_p=0.9, min_p=0.02, temperature=0.9),
        Sampling(top_k=5, top_p=0.99),
        Sampling(top_k=VOCABULARY - 1),
        Sampling(top_k=10 * VOCABULARY, top_p=0.9999),
    ],
    ids=str,
)
def test_what_is_drawn_is_what_a_full_sort_would_keep(sampling: Sampling) -> None:
    logits = np.random.default_rng(5).standard_normal(VOCABULARY, np.float32) * 2
    counts = draws(logits, sampling, 20_000)
    expected = kept_probabilities(logits, sampling)
    assert not counts[expected == 0].any()
    assert chi_squared(counts, expected) < 1.3  # 1 on average; seeds are fixed, so no chance


@pytest.mark.parametrize(("top_k", "kept"), [(1, 1), (3, 3), (6, 6), (7, 7), (100, 100)])
def test_equal_logits_are_kept_by_id(top_k: int, kept: int) -> None:
    logits = np.zeros(300, np.float32)
    logits[200] = 1
    expected = {200, *range(kept - 1)}
    assert set(np.flatnonzero(draws(logits, Sampling(top_k=top_k), 5000))) == expected


def test_top_p_of_equal_logits_keeps_the_fewest_that_reach_it() -> None:
    counts = draws(np.zeros(1024, np.float32), Sampling(top_p=0.25), 4000)
    assert set(np.flatnonzero(counts)) <= set(range(256))
    assert counts[250:256].any()


@pytest.mark.parametrize(
    ("sampling", "ids"),
    [
        (Sampling(top_p=0), {0}),
        (Sampling(top_p=1e-9), {0}),
        (Sampling(top_k=1), {0}),
        (Sampling(temperature=0), {0}),
        (Sampling(temperature=1e-6), {0}),
        (Sampling(temperature=5e-324), {0}),
        (Sampling(temperature=1e-5), {0}),
        (Sampling(top_p=1.0), {0, 1, 2, 3}),
        (Sampling(top_k=-1), {0, 1, 2, 3}),
        (Sampling(top_k=0), {0, 1, 2, 3}),
        (Sampling(top_k=4), {0, 1, 2, 3}),
        (Sampling(top_k=10), {0, 1, 2, 3}),
        (Sampling(min_p=1), {0}),
        (Sampling(temperature=2), {0, 1, 2, 3}),
    ],
    ids=str,
)
def test_the_ends_of_every_range(sampling: Sampling, ids: set[int]) -> None:
    counts = draws(np.array([2.0, 1.0, 0.5, -1.0], np.float32), sampling, 1000)
    assert set(np.flatnonzero(counts)) == ids
    if len(ids) == 4 and sampling.temperature == 1:
        np.testing.assert_array_equal(
            counts, draws(np.array([2.0, 1.0, 0.5, -1.0], np.float32), Sampling(), 1000)
        )


def test_greedy_takes_the_first_of_the_greatest() -> None:
    logits = np.full(100, -3, np.float32)
    logits[[40, 70, 99]] = 5
    assert draws(logits, Sampling(temperature=0), 1)[40] == 1


def test_huge_and_tiny_logits_overflow_nothing() -> None:
    logits = np.array([-3e38, 3e38, 2e38, 0], np.float32)
    for temperature in (0, 1e-5, 1, 2):
        assert draws(logits, Sampling(temperature=temperature), 10)[1] == 10


@pytest.mark.parametrize("spoilt", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("temperature", [0, 1])
def test_a_logit_that_is_no_number_fails_its_row_alone(spoilt: float, temperature: float) -> None:
    sampler = sampler_of(*[Sampling(temperature=temperature)] * 3, vocabulary=50)
    logits = np.zeros((3, 64), np.float32)
    logits[:, 20] = 90
    logits[1, 49] = spoilt
    logits[2, 50] = spoilt  # beyond the vocabulary: nobody looks
    slots, lengths = np.arange(3, dtype=np.int32), np.full(3, 3, np.int32)
    tokens, failed = sampler.sample(logits, slots, lengths, np.zeros((3, 8), np.int32))
    assert failed.tolist() == [False, True, False]
    assert tokens[[0, 2]].tolist() == [20, 20]


def test_output_i_of_a_seed_is_the_same_in_any_slot_beside_anybody() -> None:
    logits = np.random.default_rng(3).standard_normal((1, VOCABULARY), np.float32)
    token_ids = np.zeros((8, 64), np.int32)

    def tokens(slot: int, neighbours: int) -> list[int]:
        seeds = tuple(11 if other == slot else 1000 + other for other in range(8))
        sampler = sampler_of(*[Sampling(temperature=0.9)] * 8, vocabulary=VOCABULARY, seeds=seeds)
        others = [other for other in range(8) if other != slot][:neighbours]
        slots = np.array([*others, slot], np.int32)
        found = []
        for output in range(32):
            lengths = np.full(slots.size, 3 + output, np.int32)
            rows = np.repeat(logits, slots.size, axis=0)
            found.append(int(sampler.sample(rows, slots, lengths, token_ids)[0][-1]))
        return found

    alone = tokens(0, 0)
    assert tokens(0, 1) == tokens(0, 7) == tokens(7, 7) == tokens(3, 2) == alone
    assert len(set(alone)) > 16


@pytest.mark.parametrize("seed", [0, 11, -1, 2**63, 2**64 - 1, -(2**63)])
def test_every_seed_of_64_bits_is_one_of_its_own(seed: int) -> None:
    logits = np.zeros((2, VOCABULARY), np.float32)
    both = [Sampling()] * 2
    sampler = sampler_of(*both, vocabulary=VOCABULARY, seeds=(seed, seed ^ (1 << 40)))
    slots, lengths = np.arange(2, dtype=np.int32), np.full(2, 3, np.int32)
    tokens, _ = sampler.sample(logits, slots, lengths, np.zeros((2, 8), np.int32))
    assert tokens[0] != tokens[1]


@pytest.mark.parametrize(
    ("sampling", "first", "third"),
    [  # adjusted logits of the ids 65, 66, 67, 68 before the first and the third output token
        (Sampling(presence_penalty=0.5), [1, 1, 1, 1], [1, 1, 0.5, 1]),
        (Sampling(frequency_penalty=0.25), [1, 1, 1, 1], [1, 1, 0.5, 1]),
        (Sampling(repetition_penalty=1.25), [0.8, 0.8, 1, 1], [0.8, 0.8, 0.8, 1]),
        (
            Sampling(presence_penalty=0.5, frequency_penalty=0.25, repetition_penalty=1.25),
            [0.8, 0.8, 1, 1],
            [0.8, 0.8, -0.2, 1],
        ),
        (Sampling(logit_bias=((66, 2.5), (68, -100))), [1, 3.5, 1, -99], [1, 3.5, 1, -99]),
        (
            Sampling(logit_bias=((66, -2.0),), repetition_penalty=2),
            [0.5, -2, 1, 1],
            [0.5, -2, 0.5, 1],
        ),
    ],
    ids=str,
)
def test_what_penalties_and_biases_look_at(
    sampling: Sampling, first: list[float], third: list[float]
) -> None:
    sampler = sampler_of(sampling, vocabulary=100)
    token_ids = np.array([[65, 65, 66, 67, 67, 0, 0, 0]], np.int32)
    for length, expected in ((3, first), (5, third)):
        logits = np.ones((1, 112), np.float32)
        sampler.adjust(logits, np.zeros(1, np.int32), np.array([length], np.int32), token_ids)
        np.testing.assert_allclose(logits[0, 65:69], expected, rtol=1e-6)
        assert (np.delete(logits[0], range(65, 69)) == 1).all()  # padding is never counted


def test_stop_ids_wait_until_enough_tokens_exist() -> None:
    sampler = sampler_of(Sampling(temperature=0, min_tokens=2), vocabulary=20)
    logits = np.zeros((1, 32), np.float32)
    logits[0, [7, 9, 3]] = 30, 20, 10
    found = [
        int(
            sampler.sample(
                logits.copy(),
                np.zeros(1, np.int32),
                np.array([length], np.int32),
                np.zeros((1, 8), np.int32),
            )[0][0]
        )
        for length in (3, 4, 5)
    ]
    assert found == [3, 3, 7]


def test_a_slot_keeps_nothing_of_who_had_it_before() -> None:
    sampler = sampler_of(
        Sampling(temperature=0, min_tokens=9, logit_bias=((5, 100),), presence_penalty=2),
        vocabulary=20,
    )
    prompt = np.array([1], np.int32)
    sampler.join(Join(0, 0, prompt, 1, (), 0, Sampling(temperature=0)))
    logits = np.zeros((1, 32), np.float32)
    logits[0, 7] = 1
    tokens, _ = sampler.sample(
        logits, np.zeros(1, np.int32), np.array([3], np.int32), np.full((1, 8), 7, np.int32)
    )
    assert tokens.tolist() == [7]
