import os
import stat
from pathlib import Path

from plancha_app.chat.history import MOST, History, history_file


def test_it_is_in_the_users_state_folder() -> None:
    assert history_file({"XDG_STATE_HOME": "/s"}) == Path("/s/plancha/chat_history")
    assert history_file({}) == Path("~/.local/state/plancha/chat_history").expanduser()


def test_messages_of_several_lines_come_back_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "history"
    history = History(path)
    for message in ("one", "two\nlines", "two\nlines", 'with "quotes" and 世界'):
        history.add(message)

    assert History(path).messages == ["one", "two\nlines", 'with "quotes" and 世界']
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_it_does_not_grow_without_end(tmp_path: Path) -> None:
    path = tmp_path / "history"
    history = History(path)
    for number in range(MOST + 5):
        history.add(str(number))
    history.close()

    kept = History(path).messages
    assert (len(kept), kept[0], kept[-1]) == (MOST, "5", str(MOST + 4))
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_a_file_that_is_damaged_or_cannot_be_had_is_no_hindrance(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_bytes(b'"good"\n\xff\n{}\n"also good"')
    assert History(path).messages == ["good", "also good"]

    nowhere = History(tmp_path)  # a folder
    nowhere.add("still here")
    nowhere.close()
    assert nowhere.messages == ["still here"]


def test_what_another_conversation_wrote_meanwhile_is_not_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "history"
    long, other = History(path), History(path)
    for number in range(MOST + 1):
        long.add(f"{number}")
    other.add("of the other one")
    long.close()

    assert History(path).messages[-2:] == [f"{MOST}", "of the other one"]
