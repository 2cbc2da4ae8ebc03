"""Whether SIGHUP means that the terminal is gone, on real terminals."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY)  # what a shell's terminal is to its programs
if sys.argv[1] == "nohup":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
from plancha_app.terminal import Terminal
terminal = Terminal()
if sys.argv[1] == "plain":
    signal.signal(signal.SIGHUP, lambda *_: None)
print(terminal.hung_up(), flush=True)
os.read(int(sys.argv[2]), 1)
print(terminal.hung_up(), flush=True)
"""


@pytest.mark.parametrize(("how", "expected"), [("plain", "True"), ("nohup", "False")])
def test_a_closed_terminal_is_noticed_unless_the_process_outlives_it(
    how: str, expected: str
) -> None:
    master, slave = os.openpty()
    told, tell = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, how, str(told)],
        stdin=slave,
        stdout=subprocess.PIPE,
        pass_fds=[told],
        start_new_session=True,
        text=True,
    )
    os.close(slave)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "False"
    os.close(master)
    os.write(tell, b"x")
    assert process.stdout.readline().strip() == expected
    assert process.wait(30) == 0
    process.stdout.close()
    os.close(told)
    os.close(tell)


def test_without_a_terminal_there_is_none_to_lose() -> None:
    script = "from plancha_app.terminal import Terminal; print(Terminal().hung_up())"
    found = subprocess.run(
        [sys.executable, "-c", script], start_new_session=True, capture_output=True, check=True
    )
    assert found.stdout == b"False\n"
