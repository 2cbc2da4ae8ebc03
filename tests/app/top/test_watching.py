"""`plancha top` on a real terminal, with a server that comes and goes."""

import json
import os
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import anyio
import jsonschema
import pytest

from live_server import LiveServer, serving
from plancha_transports.live_schema import LIVE
from server_processes import started
from threaded_server import HANG_S
from typed_terminal import typed


@pytest.fixture
def server() -> Iterator[LiveServer]:
    with serving() as found:
        yield found


def top(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "plancha_app", "top", *map(str, words)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=HANG_S,
        check=False,
    )


def test_it_shows_what_the_server_tells_and_q_leaves(server: LiveServer) -> None:
    with typed("top", server.url, "--interval", "0.25") as terminal:
        shown = terminal.until("q leaves")
        assert "other-model at http://127.0.0.1" in shown
        terminal.until("output tokens.*\n400/s")  # a hundred more at each look
        terminal.send("x q")
        assert terminal.end() == 0

    assert b"\x1b[?1049h" in terminal.raw and b"\x1b[?1049l" in terminal.raw
    assert terminal.raw.rindex(b"\x1b[?25h") > terminal.raw.rindex(b"\x1b[?25l")


def test_keys_are_as_before_after_it_has_left(server: LiveServer) -> None:
    with typed("top", server.url) as terminal:
        before = termios.tcgetattr(terminal.child.child_fd)
        terminal.until("q leaves")
        assert not termios.tcgetattr(terminal.child.child_fd)[3] & termios.ICANON
        terminal.interrupt()
        assert terminal.end() == 130
        assert termios.tcgetattr(terminal.child.child_fd)[:4] == before[:4]


def test_a_signal_to_stop_leaves_the_terminal_in_order(server: LiveServer) -> None:
    with typed("top", server.url) as terminal:
        terminal.until("q leaves")
        terminal.child.kill(signal.SIGTERM)
        assert terminal.end() == 0
    assert b"\x1b[?1049l" in terminal.raw


def test_it_fits_itself_to_another_size(server: LiveServer) -> None:
    with typed("top", server.url) as terminal:
        terminal.until("q leaves")
        assert "p50" not in terminal.text
        terminal.resize(40, 130)
        terminal.until("first p50 +p99")
        terminal.send("q")
        assert terminal.end() == 0


def test_a_server_that_is_gone_is_told_and_found_again(server: LiveServer) -> None:
    with typed("top", server.url, "--interval", "0.25") as terminal:
        terminal.until("q leaves")
        server.fails = True
        terminal.until("answers 503: loading; trying again")
        assert "KV pool" in terminal.text
        server.fails = False
        terminal.until("q leaves")
        server.nonsense = True
        terminal.until("does not tell what `top` shows")
        terminal.send("q")
        assert terminal.end() == 0


def test_one_frame_goes_to_a_pipe_without_colours(server: LiveServer) -> None:
    found = top(server.url, "--interval", "0.25")

    assert (found.returncode, found.stderr) == (0, "")
    assert "KV pool" in found.stdout and "\x1b" not in found.stdout
    assert "output tokens" in found.stdout and "400/s" in found.stdout


def test_a_terminal_that_wants_no_colour_gets_none(server: LiveServer) -> None:
    with typed("top", server.url, "--once", environment={"NO_COLOR": "1"}) as terminal:
        terminal.until("since the start")
        assert terminal.end() == 0

    colours = re.findall(rb"\x1b\[[0-9;]*(?:3[0-8]|4[0-8]|9[0-7])[;m]", terminal.raw)
    assert colours == []
    assert "A acme" in terminal.text


async def test_a_real_server_is_watched_while_it_works(tmp_path: Path) -> None:
    with started(tmp_path, gateways=0) as server:
        await server.until(lambda: server.said)
        url = server.url
        body = {"prompt": "x", "max_tokens": 4000, "stream": True}
        async with (
            aiohttp.ClientSession() as client,
            client.post(f"{url}/v1/completions", json=body) as answering,
        ):
            assert answering.status == 200
            words = ("--once", "--interval", "0.5")
            found = await anyio.to_thread.run_sync(top, url, "--json", *words)
            frame = await anyio.to_thread.run_sync(top, url, *words)

    told = json.loads(found.stdout)
    rates = told.pop("rates")
    jsonschema.validate(told, LIVE)
    assert told["batch"]["running"] == 1
    assert rates["output_tokens_per_s"] > 0
    assert rates["tenants"] == {"default": rates["output_tokens_per_s"]}
    assert "1 of 8 slots" in frame.stdout and "all tenants" in frame.stdout


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("http://127.0.0.1:1",), 1, "the connection is refused"),
        (("--json",), 2, "give --once"),
        (("--interval", "0"), 2, "--interval"),
        (("http://h:port",), 2, "is no server's address"),
    ],
)
def test_what_cannot_be_watched_is_told(words: tuple[str, ...], code: int, told: str) -> None:
    found = top(*words)

    assert found.returncode == code
    assert told in found.stdout + found.stderr
    assert "Traceback" not in found.stderr


def test_a_server_of_another_kind_is_told(server: LiveServer) -> None:
    server.fails = True

    found = top(server.url, "--once")

    assert (found.returncode, found.stdout) == (1, "")
    assert "answers 503: loading" in found.stderr


def test_what_a_server_calls_its_model_or_its_trouble_moves_no_cursor(server: LiveServer) -> None:
    server.model = server.trouble = "evil\x1b]0;owned\x07"
    with typed("top", server.url, "--interval", "0.25") as terminal:
        terminal.until(re.escape(r"evil\x1b]0;owned\x07 at"))
        server.fails = True
        terminal.until(re.escape(r"evil\x1b]0;owned\x07; trying again"))
        terminal.send("q")
        assert terminal.end() == 0

    assert terminal.screen.title == ""
