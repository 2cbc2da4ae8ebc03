"""The terminal is as it was, whenever Ctrl-C comes."""

import os
import termios
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from plancha_app import keyboard

LOCAL_FLAGS = 3


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    ours, theirs = os.openpty()
    with open(theirs, "rb", buffering=0) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        yield theirs
    os.close(ours)


def test_ctrl_c_just_as_keys_stop_being_shown_lets_them_be_shown_again(
    terminal: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, calls = termios.tcsetattr, []

    def interrupted(*words: Any) -> None:
        change(*words)
        calls.append(words)
        if len(calls) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(termios, "tcsetattr", interrupted)
    with suppress(KeyboardInterrupt), keyboard.unechoed():
        pytest.fail("it goes on")

    assert len(calls) == 2
    assert termios.tcgetattr(terminal)[LOCAL_FLAGS] & termios.ECHO


def test_without_a_terminal_nothing_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull, "rb") as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        with keyboard.unechoed() as is_there:
            assert not is_there
