"""A conversation on a real terminal, with a server that is not ours."""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from openai_server import DONE, OpenAiServer, event, piece, said, serving
from threaded_server import HANG_S
from typed_terminal import Terminal, typed


@pytest.fixture
def server() -> Iterator[OpenAiServer]:
    with serving(OpenAiServer()) as found:
        yield found


def talk(
    server: OpenAiServer, home: Path, *words: object, columns: int = 80
) -> AbstractContextManager[Terminal]:
    environment = {"XDG_STATE_HOME": str(home)}
    return typed("chat", server.url, *words, environment=environment, columns=columns)


def prompts(terminal: Terminal, count: int) -> str:
    """Once it has asked for a message so often."""
    return terminal.until(rf"(?s)(>>>.*){{{count}}}$")


def test_an_answer_appears_with_its_figures_and_is_remembered(
    server: OpenAiServer, tmp_path: Path
) -> None:
    with talk(server, tmp_path) as terminal:
        shown = prompts(terminal, 1)
        assert "other-model at http://127.0.0.1" in shown
        terminal.send("Who are you?\r")
        shown = prompts(terminal, 2)
        assert "Hello there." in shown.splitlines()
        assert re.search(r"first token \d+\.\d\d s .* about 2 tokens", shown)
        terminal.send("And now?\r")
        prompts(terminal, 3)
        terminal.send("\x04")
        assert terminal.end() == 0

    assert [message["role"] for message in server.bodies[1]["messages"]] == [
        "user", "assistant", "user",
    ]  # fmt: skip
    assert server.bodies[1]["messages"][1]["content"] == "Hello there."


def test_ctrl_c_ends_the_answer_at_the_server_too_and_not_the_program(
    server: OpenAiServer, tmp_path: Path
) -> None:
    server.chunks, server.hold = [piece("Once upon")], True
    with talk(server, tmp_path) as terminal:
        prompts(terminal, 1)
        terminal.send("A story, please.\r")
        terminal.until("Once upon")
        terminal.interrupt()
        shown = prompts(terminal, 2)
        assert "interrupted" in shown
        assert server.left.wait(HANG_S)
        server.chunks, server.hold = said(" a time."), False
        terminal.send("Go on.\r")
        prompts(terminal, 3)
        terminal.send("/quit\r")
        assert terminal.end() == 0

    assert server.bodies[1]["messages"][1]["content"] == "Once upon"


def test_ctrl_c_where_nothing_is_answered_drops_the_line_and_says_how_to_leave(
    server: OpenAiServer, tmp_path: Path
) -> None:
    with talk(server, tmp_path) as terminal:
        prompts(terminal, 1)
        terminal.send("half a thou")
        terminal.until("half a thou")
        terminal.interrupt()
        assert "Ctrl-D leaves" in prompts(terminal, 2)
        terminal.send("\x04")
        assert terminal.end() == 0

    assert server.bodies == []


def test_a_message_may_have_several_lines(server: OpenAiServer, tmp_path: Path) -> None:
    with talk(server, tmp_path) as terminal:
        prompts(terminal, 1)
        terminal.send("one \\\r")
        terminal.until(r"\.\.\.")
        terminal.send("two\r")
        prompts(terminal, 2)
        terminal.send('"""\r')
        terminal.send("/three\r")
        terminal.send('  four"""\r')
        prompts(terminal, 3)

    asked = [body["messages"][-1]["content"] for body in server.bodies]
    assert asked == ["one \ntwo", "/three\n  four"]


def test_words_with_a_slash_change_what_is_sent(server: OpenAiServer, tmp_path: Path) -> None:
    with talk(server, tmp_path, "--system", "Be kind.", "--temperature", "0.5") as terminal:
        prompts(terminal, 1)
        for number, line in enumerate(
            ("hi", "/system Be brief.", "/clear", " /etc/passwd?", "/nothing", "/help"), 2
        ):
            terminal.send(f"{line}\r")
            shown = prompts(terminal, number)
        assert "1 turn forgotten" in shown
        assert "there is no /nothing" in shown
        assert "Ctrl-C ends an answer" in shown

    first, second = server.bodies
    assert first["messages"][0] == {"role": "system", "content": "Be kind."}
    assert first["temperature"] == 0.5
    assert second["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "/etc/passwd?"},
    ]


def test_what_was_typed_comes_back_with_the_arrow_keys_in_the_next_conversation(
    server: OpenAiServer, tmp_path: Path
) -> None:
    with talk(server, tmp_path) as terminal:
        prompts(terminal, 1)
        terminal.send("Remember me.\r")
        prompts(terminal, 2)
        terminal.send("\x04")
        assert terminal.end() == 0
    kept = tmp_path / "plancha" / "chat_history"
    assert stat.S_IMODE(os.stat(kept).st_mode) == 0o600

    with talk(server, tmp_path) as terminal:
        prompts(terminal, 1)
        terminal.send("\x1b[A\r")
        prompts(terminal, 2)
    with talk(server, tmp_path, "--no-history") as terminal:
        prompts(terminal, 1)
        terminal.send("A secret.\r")
        prompts(terminal, 2)

    asked = [body["messages"][-1]["content"] for body in server.bodies]
    assert asked == ["Remember me.", "Remember me.", "A secret."]
    assert "secret" not in kept.read_text()


def test_an_error_in_the_middle_is_told_and_the_conversation_goes_on(
    server: OpenAiServer, tmp_path: Path
) -> None:
    server.chunks = [piece("Well"), event(error={"message": "out of memory"})]
    with talk(server, tmp_path) as terminal:
        prompts(terminal, 1)
        terminal.send("hi\r")
        assert "broke off: out of memory" in prompts(terminal, 2)
        server.chunks = said("Better.")
        terminal.send("again\r")
        assert "Better." in prompts(terminal, 3)


def test_what_a_server_sends_moves_no_cursor(server: OpenAiServer, tmp_path: Path) -> None:
    server.chunks = said("safe \x1b[2J\x1b]0;owned\x07 text\r\x9b31m")
    with talk(server, tmp_path) as terminal:
        prompts(terminal, 1)
        terminal.send("hi\r")
        shown = prompts(terminal, 2)

    assert r"safe \x1b[2J\x1b]0;owned\x07 text\r\x9b31m" in shown
    assert terminal.screen.title == ""


def test_words_are_not_cut_at_the_edge(server: OpenAiServer, tmp_path: Path) -> None:
    text = "It was the best of times, it was the worst of times, it was the age of wisdom."
    server.chunks = said(*re.findall(r".{1,3}", text))
    with talk(server, tmp_path, columns=40) as terminal:
        prompts(terminal, 1)
        terminal.send("hi\r")
        shown = prompts(terminal, 2).splitlines()

    begin = shown.index(">>> hi")
    assert shown[begin + 1 : begin + 4] == [
        "It was the best of times, it was the",
        "worst of times, it was the age of",
        "wisdom.",
    ]


def test_what_is_typed_during_an_answer_waits_for_the_next_message(
    server: OpenAiServer, tmp_path: Path
) -> None:
    server.chunks, server.hold, server.later = [piece("Once")], True, said(" upon a time.")
    with talk(server, tmp_path) as terminal:
        prompts(terminal, 1)
        terminal.send("first\r")
        terminal.until("Once")
        terminal.send("second")
        server.release.set()
        shown = terminal.until(">>> second")

    assert "Once upon a time." in shown.splitlines()


def test_the_servers_own_count_of_tokens_is_told(server: OpenAiServer, tmp_path: Path) -> None:
    usage = event(choices=[], usage={"prompt_tokens": 3, "completion_tokens": 17})
    server.chunks = [piece("a"), piece("b", finish_reason="length"), usage, DONE]
    with talk(server, tmp_path) as terminal:
        prompts(terminal, 1)
        terminal.send("hi\r")
        shown = prompts(terminal, 2)

    assert "17 tokens" in shown and "about" not in shown
    assert "cut off at the token limit" in shown


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"TTY_COMPATIBLE": "0"}])
def test_no_terminal_is_so_plain_that_it_gets_escape_sequences(
    server: OpenAiServer, environment: dict[str, str]
) -> None:
    server.chunks = said("safe \x1b]0;owned\x07 text")
    with typed("chat", server.url, "-p", "hi", environment=environment) as terminal:
        assert terminal.end() == 0

    assert rb"safe \x1b]0;owned\x07 text" in terminal.raw


@pytest.mark.parametrize(
    "text",
    ["10\u202f000\u00a0€", "全角\u3000空白", "\u0645\u06cc\u200c\u062e\u0648", "👩\u200d💻"],
)
def test_spaces_and_joiners_of_all_scripts_come_as_they_are(
    server: OpenAiServer, text: str
) -> None:
    server.chunks = said(text)
    with typed("chat", server.url, "-p", "hi") as terminal:
        assert terminal.end() == 0

    assert text.encode() in terminal.raw
