"""One question to servers that are not ours, as a script asks it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from openai_server import DONE, END, OpenAiServer, event, piece, said, serving
from plancha_app.cli import main
from threaded_server import HANG_S

TEXT = "Grüße, 世界 👋!"
WHOLE = b"".join(said("Grüße, ", "世界 ", "👋!"))


@pytest.fixture
def server() -> Iterator[OpenAiServer]:
    with serving(OpenAiServer()) as found:
        yield found


def chat(
    *words: object, stdin: bytes = b"", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    inherited = {name: each for name, each in os.environ.items() if not name.startswith("OPENAI_")}
    return subprocess.run(
        [sys.executable, "-m", "plancha_app", "chat", *map(str, words)],
        input=stdin,
        capture_output=True,
        env={**inherited, **(environment or {})},
        timeout=HANG_S,
        check=False,
    )


Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ask(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ask:
    """`plancha chat … -p hi` in this process: exit code, stdout, stderr."""
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)

    def run(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(["chat", "-p", "hi", *map(str, words)])
        out, err = capfd.readouterr()
        assert isinstance(left.value.code, int)
        return left.value.code, out, err

    return run


def test_a_pipe_is_one_question_and_gets_the_answer_alone(server: OpenAiServer) -> None:
    found = chat(server.url, "--system", "Be brief.", stdin="Wer bist du, 世界?\n".encode())

    assert (found.returncode, found.stdout, found.stderr) == (0, b"Hello there.\n", b"")
    (body,) = server.bodies
    assert body["stream"] is True and body["model"] == "other-model"
    assert [message["content"] for message in body["messages"]] == [
        "Be brief.", "Wer bist du, 世界?",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "chunks",
    [
        [WHOLE],
        [WHOLE[at : at + 1] for at in range(len(WHOLE))],
        [WHOLE.replace(b"\n", b"\r\n")],
        [b": keep-alive\n\n", WHOLE[:50], b"", WHOLE[50:], b"\n: bye\n\n"],
        [b"event: message\nid: 7\nretry: 10\n" + WHOLE],
        [WHOLE.replace(b"data: ", b"data:")],
        [WHOLE.removesuffix(DONE)],  # ended by its finish reason
        [WHOLE.removesuffix(b"\n\n")],
        [WHOLE + DONE + piece("nobody reads this")],
    ],
)
def test_however_a_stream_is_written_its_text_is_the_same(
    server: OpenAiServer, ask: Ask, chunks: Sequence[bytes]
) -> None:
    server.chunks = chunks

    assert ask(server.url) == (0, f"{TEXT}\n", "")


def test_a_server_that_does_not_stream_is_understood(server: OpenAiServer, ask: Ask) -> None:
    server.content_type = "application/json"
    whole = {"choices": [{"message": {"content": TEXT}, "finish_reason": "stop"}]}
    server.chunks = [json.dumps(whole).encode()]

    assert ask(server.url) == (0, f"{TEXT}\n", "")


def test_thoughts_are_no_part_of_the_answer(server: OpenAiServer, ask: Ask) -> None:
    thought = event(choices=[{"delta": {"reasoning_content": "Hm.", "content": None}}])
    server.chunks = [thought, *said("42")]

    assert ask(server.url) == (0, "42\n", "")


@pytest.mark.parametrize(
    ("chunks", "status", "told"),
    [
        ([piece("We")], 200, "hung up before its answer was complete"),
        ([piece("We"), event(error={"message": "no memory"})], 200, "broke off: no memory"),
        ([piece("We"), b'event: error\ndata: {"message": "no"}\n\n'], 200, "broke off: no"),
        ([piece("We"), b"data: {nonsense\n\n"], 200, "is no JSON object"),
        ([b"data: [1, 2]\n\n"], 200, "is no JSON object"),
        ([b"<html>a login page</html>"], 200, "sends no event stream"),
        ([b""], 200, "sends no event stream"),
        ([b'{"error": {"message": "Slow down"}}'], 429, "answers 429: Slow down"),
        ([b'{"detail": "Not here"}'], 404, "answers 404: Not here; is that the right server?"),
        ([b'{"error": "bad key"}'], 401, "answers 401: bad key; give a key with --key-file"),
        ([b"\xff\xfe"], 500, "answers 500"),
    ],
)
def test_what_goes_wrong_is_one_line_and_exit_code_1(
    server: OpenAiServer, ask: Ask, chunks: Sequence[bytes], status: int, told: str
) -> None:
    server.chunks, server.status = chunks, status

    code, out, err = ask(server.url)

    assert (code, err.count("\n")) == (1, 1)
    assert out in ("", "We\n")
    assert err.startswith(f"plancha: {server.url}") or err.startswith("plancha: an event that")
    assert told in err


def test_a_server_that_minds_a_field_is_asked_without_it(server: OpenAiServer, ask: Ask) -> None:
    server.refuse, server.chunks = "stream_options", said("fine")

    assert ask(server.url) == (0, "fine\n", "")
    assert ["stream_options" in body for body in server.bodies] == [True, False]


def test_an_answer_that_was_cut_off_is_told_beside_it(server: OpenAiServer, ask: Ask) -> None:
    server.chunks = [piece("Once upon", finish_reason="length"), DONE]

    code, out, err = ask(server.url, "--max-tokens", "2")

    assert (code, out) == (0, "Once upon\n")
    assert "--max-tokens" in err
    assert server.bodies[0]["max_tokens"] == 2


@pytest.mark.parametrize(
    ("environment", "key"),
    [
        ({"OPENAI_BASE_URL": "/api/v1", "OPENAI_API_KEY": "sk-1"}, "Bearer sk-1"),
        ({"OPENAI_BASE_URL": "/api/v1/"}, None),
    ],
)
def test_the_environment_says_where_and_with_which_key_as_for_the_openai_client(
    environment: dict[str, str], key: str | None
) -> None:
    with serving(OpenAiServer(), prefix="/api/v1") as server:
        base = server.url + environment["OPENAI_BASE_URL"]
        found = chat("-p", "hi", environment={**environment, "OPENAI_BASE_URL": base})

    assert found.returncode == 0
    assert server.keys == [key, key]


def test_a_key_file_goes_before_the_environment(server: OpenAiServer, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("sk-file\n")
    other = {"OPENAI_API_KEY": "sk-other"}

    found = chat(server.url, "-p", "hi", "--key-file", file, "-m", "m", environment=other)

    assert found.returncode == 0
    assert server.keys == ["Bearer sk-file"]
    assert server.bodies[0]["model"] == "m"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("http://127.0.0.1:1",), "the connection is refused"),
        (("http://host.invalid",), "does not answer"),
        (("http://127.0.0.1:1", "--key-file", "/absent"), "/absent: the key cannot be read"),
        (("ftp://127.0.0.1",), "it must be such as http://127.0.0.1:8000"),
        (("http://user:secret@127.0.0.1",), "a key is given by --key-file"),
        (("http://127.0.0.1:1", "--temperature", "-1"), "--temperature"),
    ],
)
def test_a_mistake_is_told_without_a_traceback(ask: Ask, words: tuple[str, ...], told: str) -> None:
    code, out, err = ask(*words)

    assert code == (1 if "not answer" in told or "refused" in told else 2)
    assert told in out + err
    assert "Traceback" not in out + err and "secret" not in out + err


def test_nothing_to_ask_is_a_mistake(server: OpenAiServer) -> None:
    found = chat(server.url, stdin=b"\n")

    assert (found.returncode, found.stdout) == (2, b"")
    assert b"the prompt is empty" in found.stderr


def test_an_interrupted_answer_leaves_with_130_and_what_came(server: OpenAiServer) -> None:
    server.chunks, server.hold = [piece("Once")], True
    process = subprocess.Popen(
        [sys.executable, "-m", "plancha_app", "chat", server.url, "-p", "hi"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.read(4) == b"Once"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=HANG_S)

    assert (process.returncode, out, err) == (130, b"\n", b"")
    assert server.left.wait(HANG_S)


def test_a_locale_without_the_letters_gets_what_it_can_show(server: OpenAiServer) -> None:
    server.chunks = [*map(piece, ("caf\u00e9 ", "\u4e16")), END, DONE]

    found = chat(server.url, "-p", "hi", environment={"PYTHONIOENCODING": "latin-1"})

    assert (found.returncode, found.stdout, found.stderr) == (0, "café ?\n".encode("latin-1"), b"")


def test_an_answer_that_is_no_object_is_read_past(ask: Ask, server: OpenAiServer) -> None:
    broken = event(choices=[{"index": 0, "delta": "Hello"}])
    server.chunks = [broken, *said("there")]

    assert ask(server.url) == (0, "there\n", "")


def test_a_model_that_is_not_there_is_no_reason_to_doubt_the_server(
    ask: Ask, server: OpenAiServer
) -> None:
    server.status, server.content_type = 404, "application/json"
    server.chunks = [b'{"error": {"message": "The model \'x\' does not exist."}}']

    code, _, err = ask(server.url, "-m", "x")

    assert code == 1
    assert err.endswith("answers 404: The model 'x' does not exist\n")
