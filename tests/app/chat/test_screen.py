"""The screen of a conversation, where a terminal cannot be made to do it on time."""

import pytest
from rich.status import Status

from plancha_app.chat.screen import Screen


def test_ctrl_c_just_as_the_wait_begins_leaves_nothing_turning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    begun: list[Status] = []
    start, stop = Status.start, Status.stop

    def interrupted(status: Status) -> None:
        start(status)
        begun.append(status)
        raise KeyboardInterrupt

    def stopped(status: Status) -> None:
        stop(status)
        begun.remove(status)

    monkeypatch.setattr(Status, "start", interrupted)
    monkeypatch.setattr(Status, "stop", stopped)
    with pytest.raises(KeyboardInterrupt), Screen().answering():
        pytest.fail("it goes on")

    assert begun == []
