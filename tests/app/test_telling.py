"""What the operator is told at the start."""

import pytest

from plancha_app.telling import ending, greet


@pytest.mark.parametrize("needs_key", [True, False])
def test_the_example_has_a_key_where_one_is_needed(needs_key: bool) -> None:
    said: list[str] = []

    greet(said.append, "tiny", ["http://127.0.0.1:8000"], needs_key=needs_key)

    where, how = said
    assert where == "tiny is served at http://127.0.0.1:8000"
    assert ("Authorization: Bearer " in how) is needs_key


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (3, "ended with exit code 3"),
        (0, "ended with exit code 0"),
        (-11, "was killed by SIGSEGV"),
        (-9, "was killed by SIGKILL, as the system does when memory runs out"),
        (-40, "was killed by signal 40"),  # a real-time one, which has no name
        (None, "could not be started"),
    ],
)
def test_how_a_process_ended_is_told_in_words(code: int | None, told: str) -> None:
    assert ending(code) == told
