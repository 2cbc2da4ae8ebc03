"""What the operator is told at the start."""

import pytest

from plancha_app.telling import greet


@pytest.mark.parametrize("needs_key", [True, False])
def test_the_example_has_a_key_where_one_is_needed(needs_key: bool) -> None:
    said: list[str] = []

    greet(said.append, "tiny", ["http://127.0.0.1:8000"], needs_key=needs_key)

    where, how = said
    assert where == "tiny is served at http://127.0.0.1:8000"
    assert ("Authorization: Bearer " in how) is needs_key
