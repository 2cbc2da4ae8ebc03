"""Output that nobody takes, input that is not there, and interrupts: told, or nothing at all."""

import subprocess
import sys

import pytest


def shell(line: str) -> subprocess.CompletedProcess[str]:
    """A line of bash in which `plancha` is this one."""
    return subprocess.run(
        ["bash", "-c", f'plancha() {{ "{sys.executable}" -m plancha_app "$@"; }}; {line}'],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        ("plancha plugins | head -1; exit ${PIPESTATUS[0]}", 0, ""),
        ("plancha keys new | true; exit ${PIPESTATUS[0]}", 0, ""),
        ("plancha keys new >&-", 0, ""),
        ("plancha keys new > /dev/full", 1, "plancha: cannot write: No space left on device\n"),
        ("plancha keys hash <&-", 2, "plancha: a key is one word"),
        ("plancha chat -p x http://127.0.0.1:1 2>&-", 1, ""),
        (
            "plancha bench compare /absent /absent",
            2,
            "plancha: /absent: No such file or directory\n",
        ),
        (
            "plancha bench http://127.0.0.1:1 --prompt-tokens a",
            2,
            'plancha: --prompt-tokens is "a"; it must be lengths such as',
        ),
        ("plancha bench compare / /", 2, "plancha: /: Is a directory\n"),
    ],
)
def test_streams_that_are_closed_or_full_and_files_that_are_not_there(
    line: str, code: int, told: str
) -> None:
    found = shell(line)

    assert found.returncode == code, found.stderr
    assert found.stderr.startswith(told) and (told or not found.stderr)


def test_an_interrupt_during_the_imports_is_no_traceback() -> None:
    program = (
        "import sys, signal, importlib.abc\n"
        "class Interrupting(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'plancha_app.commands.all': signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "from plancha_app.cli import main\n"
        "main(['plugins'])"
    )

    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert (found.returncode, found.stdout, found.stderr) == (130, "", "")
