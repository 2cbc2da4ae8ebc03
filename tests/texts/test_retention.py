import math

import pytest

from plancha_texts.retention import Policy, is_retention

DAY_S = 24 * 60 * 60


@pytest.mark.parametrize("value", ["none", "hash", 1, 30, 3650])
def test_a_setting_is_nothing_hashes_or_days(value: object) -> None:
    assert is_retention(value)


@pytest.mark.parametrize("value", [0, -1, 3651, True, 1.0, "1", "", None, "NONE"])
def test_everything_else_is_no_setting(value: object) -> None:
    assert not is_retention(value)


def test_what_is_older_than_the_days_is_due() -> None:
    policy = Policy({"acme": 7, "hashed": "hash", "silent": "none"})

    assert policy.kept_from("acme", 1_800_000_000.0) == 1_800_000_000.0 - 7 * DAY_S
    assert policy.kept_until("acme", 1_000) == 1_000 + 7 * DAY_S
    assert policy.kept_from("hashed", 1e9) == -math.inf
    for nobody in ("silent", "unknown"):
        assert policy.kept_from(nobody, 1e9) == math.inf
        assert policy.of(nobody) == "none"
    assert policy.kept_until("hashed", 5) is None


def test_a_place_is_needed_as_soon_as_somebody_keeps_something() -> None:
    assert not Policy({"a": "none"}).keeps_anything
    assert Policy({"a": "none", "b": 1}).keeps_anything
    assert Policy({"a": "hash"}).keeps_anything and Policy({"a": "hash"}).hashes
