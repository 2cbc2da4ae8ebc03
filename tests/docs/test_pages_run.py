"""What the pages say to type is typed, and what they say comes out, comes out."""

from pathlib import Path

import pytest

from documented_shell import shell
from markdown_pages import ROOT, Page


def run(page: str, folder: Path) -> None:
    with shell(folder) as terminal:
        for block in Page(ROOT / page).blocks():
            terminal.run(block)


@pytest.mark.model
@pytest.mark.parametrize("page", ["docs/quickstart.md"])
def test_a_page_with_a_server_runs_as_it_is(page: str, model_file: Path, tmp_path: Path) -> None:
    run(page, tmp_path)
