"""What the pages say to type is typed, and what they say comes out, comes out."""

from pathlib import Path

import anyio
import pytest

from documented_shell import Shell, commands, matches, shell
from ledger_places import Place, write_requests
from markdown_pages import GUIDES, ROOT, Page

WITH_MODEL = ("README.md", "docs/quickstart.md", "docs/operating.md")
WITHOUT = ("docs/writing-a-scheduler.md", "docs/writing-an-allocator.md")


def run(page: str, terminal: Shell) -> None:
    for block in Page(ROOT / page).blocks():
        terminal.run(block)


@pytest.mark.model
@pytest.mark.parametrize("page", WITH_MODEL)
def test_a_page_with_a_server_runs_as_it_is(page: str, model_file: Path, tmp_path: Path) -> None:
    with shell(tmp_path) as terminal:
        run(page, terminal)


@pytest.mark.parametrize("page", WITHOUT)
def test_a_page_without_one_runs_as_it_is(page: str, tmp_path: Path) -> None:
    with shell(tmp_path) as terminal:
        run(page, terminal)


def test_an_auditors_commands_run_beside_a_ledger(tmp_path: Path) -> None:
    async def fill() -> None:
        ledger = await Place(tmp_path).open()
        await write_requests(ledger, "r1", "r2")
        await ledger.close()

    anyio.run(fill)
    with shell(tmp_path) as terminal:
        for name in ("plugins.toml", "deployment.toml"):
            (tmp_path / name).write_text("[ledger]\n")
        run("docs/ledger.md", terminal)


def test_every_page_with_commands_is_run() -> None:
    typed = {str(page) for page in GUIDES for block in page.blocks() if block.is_typed}
    assert typed == {*WITH_MODEL, *WITHOUT, "docs/ledger.md"}


def test_a_command_goes_on_until_the_shell_would_not_wait_for_more() -> None:
    text = "$ cat <<'END'\n$ not a prompt\nEND\nout\n$ echo 'a\nb' \\\n  c\n$ true\n"

    assert list(commands(text)) == [
        ("cat <<'END'\n$ not a prompt\nEND\n", "out\n"),
        ("echo 'a\nb' \\\n  c\n", ""),
        ("true\n", ""),
    ]


def test_dots_are_any_text_and_all_else_is_itself() -> None:
    assert matches("id: 17, 3 tokens \n\n", "id: …, 3 tokens\n")
    assert not matches("id: 17, 4 tokens", "id: …, 3 tokens")
    assert not matches("before\nid: 17", "id: …")
    assert matches("before\nid: 17", "…\nid: …")
