"""What `--help` and a shell's completion tell."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Plancha = Callable[..., tuple[int, str, str]]

PAGES = [
    (), ("serve",), ("chat",), ("top",), ("pull",), ("check",), ("plugins",), ("keys",),
    ("keys", "new"), ("keys", "hash"), ("ledger",), ("ledger", "verify"), ("ledger", "totals"),
    ("ledger", "export"), ("bench",), ("bench", "compare"), ("bench", "plot"), ("selftest",),
    ("selftest", "isolation"), ("completion",),
]  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=" ".join)
def test_every_help_page_has_examples_and_exit_codes_in_80_columns(
    plancha: Plancha, monkeypatch: pytest.MonkeyPatch, page: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    code, out, _ = plancha(*page, "--help")

    assert code == 0
    examples = re.findall(r"^  \$ (?:\w+=\S+ )?(?:source <\()?plancha .*$", out, re.MULTILINE)
    assert examples
    assert re.search(r"^Exit codes: 0 done; .*", out, re.MULTILINE)
    assert max(map(len, out.splitlines())) <= 80
    listed = out.partition("Examples:\n")[2].partition("\n\n")[0]
    assert all(line.startswith(("  $ ", "      --")) for line in listed.splitlines()), listed


def test_examples_name_commands_and_options_that_there_are(plancha: Plancha) -> None:
    texts = {page: plancha(*page, "--help")[1] for page in PAGES}

    for text in texts.values():
        for example in re.findall(r"\bplancha ([a-z][^#|<>\n]*)", text.partition("Examples:")[2]):
            words = example.split()
            page = max((each for each in texts if tuple(words[: len(each)]) == each), key=len)
            assert page, example
            for option in re.findall(r" (--?[a-z-]+)", f" {example}"):
                assert option == "--help" or re.search(rf"{option}\b", texts[page]), example


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys, contextlib, io\n"
        "from plancha_app.cli import main\n"
        f"for page in {PAGES!r}:\n"
        "    with contextlib.redirect_stdout(io.StringIO()) as out:\n"
        "        try: main([*page, '--help'])\n"
        "        except SystemExit as left: assert not left.code\n"
        "    assert 'Usage' in out.getvalue()\n"
        "heavy = {'torch', 'numba', 'numpy', 'aiohttp', 'transformers', 'anyio', 'structlog',\n"
        "    'huggingface_hub', 'matplotlib', 'cattrs', 'prometheus_client'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_one_that_the_shell_reads(
    plancha: Plancha, program: Callable[[str], str], tmp_path: Path, shell: str
) -> None:
    code, out, _ = plancha("completion", shell)

    assert code == 0
    assert "plancha" in out and "--key-file" in out
    script = tmp_path / "script"
    script.write_text(out)
    if shell == "bash":
        assert subprocess.run([program("bash"), "-n", str(script)], check=False).returncode == 0


def test_bash_completes_commands(plancha: Plancha, program: Callable[[str], str]) -> None:
    script = plancha("completion", "bash")[1]
    asked = 'COMP_WORDS=(plancha ch); COMP_CWORD=1; _plancha; printf "%s\\n" "${COMPREPLY[@]}"'

    found = subprocess.run(
        [program("bash"), "-c", f"{script}\n{asked}"], capture_output=True, text=True, check=True
    )

    assert sorted(found.stdout.split()) == ["chat", "check"]
