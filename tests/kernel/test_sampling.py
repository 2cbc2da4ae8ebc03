"""Which sampling parameters exist and where their ends are."""

from typing import Any

import pytest

from plancha.failure import RequestFailed
from plancha.sampling import Sampling


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("temperature", float("nan")),
        ("top_p", -0.1),
        ("top_p", 1.1),
        ("top_k", -2),
        ("min_p", 1.5),
        ("repetition_penalty", 0.0),
        ("frequency_penalty", 2.5),
        ("presence_penalty", -3.0),
        ("min_tokens", -1),
        ("seed", 2**64),
        ("logit_bias", ((65, 1e9),)),
    ],
)
def test_a_value_out_of_range_is_named_with_its_parameter(param: str, value: Any) -> None:
    with pytest.raises(RequestFailed) as refused:
        Sampling(**{param: value})
    assert refused.value.failure.param == param
    assert refused.value.failure.kind == "invalid"


@pytest.mark.parametrize("temperature", [0, 1e-6, 1e-12, 1e-38, 5e-324])
def test_a_tiny_temperature_is_greedy(temperature: float) -> None:
    assert Sampling(temperature=temperature).greedy


def test_one_candidate_left_is_greedy_and_off_is_not() -> None:
    assert Sampling(top_k=1).greedy
    assert Sampling(top_p=0).greedy
    for top_k in (-1, 0, 2):
        assert not Sampling(top_k=top_k, top_p=1.0, temperature=2.0).greedy
